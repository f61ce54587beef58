//! Handing over: several locks as data, and how to go on with them.

use super::LockSet;
use super::acquire::{self, check_count, check_keys, or_refused, wrong_count};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use crate::lock::at_once::{Task, at_once};
use crate::lock::awaited::awaited;
use crate::lock::held::{HeldLocks, Hold};
use crate::lock::release::Release;
use crate::lock::resume::Resume;
use crate::lock::terms::Terms;
use crate::lock::work::not_released;
use lambda_lock_protocol::{AcquireAllOptions, Invalid, LockKey, Operation, Reclaim, SavedLock, WantedLock};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A [`LockSet`] as data. As JSON it reads `{"locks":[…]}`, with one [`SavedLock`] for each lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedLockSet {
    locks: Vec<SavedLock>,
}

impl SavedLockSet {
    /// Makes saved locks from those of the single locks. What is wrong with them is reported when they are used.
    pub fn from_locks(locks: Vec<SavedLock>) -> Self {
        Self { locks }
    }

    /// The single locks.
    pub fn locks(&self) -> &[SavedLock] {
        &self.locks
    }

    fn keys(&self) -> Vec<LockKey> {
        self.locks.iter().map(SavedLock::key).collect()
    }

    /// Checks how many there are, and each of them: where one is invalid, no request is sent for the others. A release of any locks
    /// is harmless, so it needs no other check.
    pub(super) fn check_each(&self, engine: &Engine) -> Result<(), Error> {
        check_count(self.locks.len())?;
        Ok(self.locks.iter().try_for_each(|saved| engine.check_saved(saved))?)
    }

    fn check(&self, engine: &Engine) -> Result<(), Error> {
        check_keys(engine, &self.keys())?;
        self.check_each(engine)?;
        let holder = |saved: &SavedLock| (saved.owner().to_owned(), saved.workflow().map(str::to_owned));
        if self.locks.iter().any(|saved| holder(saved) != holder(&self.locks[0])) {
            return Err(Invalid::new(
                "these saved locks have several owners or workflows, so no call acquired them at once: use each on its own",
            )
            .into());
        }
        Ok(())
    }
}

impl LockSet {
    /// Saves the locks as data, as [`Lock::save`](crate::Lock::save) does. The leases continue to run.
    pub fn save(self) -> SavedLockSet {
        self.held.abandon();
        self.to_saved()
    }

    /// Returns a copy of the locks as data, and this guard stays valid. Both hold the locks as one holder.
    pub fn to_saved(&self) -> SavedLockSet {
        SavedLockSet::from_locks(self.held.to_saved().collect())
    }
}

/// A resume of a saved set before it is awaited. Await it to get a [`LockSet`]. See
/// [`LockClient::resume_all`](crate::LockClient::resume_all) for errors, requests and cancel safety.
#[derive(Debug)]
#[must_use = "no lock is resumed until it is awaited"]
pub struct ResumeAll<'a> {
    engine: &'a Arc<Engine>,
    saved: SavedLockSet,
    terms: Terms,
}

/// A reclaim of a saved set before it is awaited. Await it to get a [`LockSet`]. See
/// [`LockClient::reclaim_all`](crate::LockClient::reclaim_all) for errors, requests and cancel safety.
#[derive(Debug)]
#[must_use = "no lock is reclaimed until it is awaited"]
pub struct ReclaimAll<'a> {
    engine: &'a Arc<Engine>,
    saved: SavedLockSet,
    terms: Terms,
}

impl<'a> ResumeAll<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, saved: SavedLockSet) -> Self {
        Self { engine, saved, terms: Terms::default() }
    }

    /// Sets the budget of the work that the locks are for, as [`Resume::within`] does for one lock. Default: none, and the leases are
    /// the saved ones.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.terms.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Sets the lease of each lock. A resume only makes leases longer: it ignores a lease that is shorter than the saved one.
    /// Default: what the budget needs, and at least the saved lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }
}

impl<'a> ReclaimAll<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, saved: SavedLockSet) -> Self {
        Self { engine, saved, terms: Terms::default() }
    }

    /// Sets the budget of the work that the locks are for, as [`within`](crate::Acquire::within) does for one lock. Default: none.
    /// A reclaim then needs a lease.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.terms.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Sets the lease of each lock. Default: what the budget needs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }
}

impl ResumeAll<'_> {
    async fn resume(self) -> Result<LockSet, Error> {
        let Self { engine, saved, terms: Terms { lease, budget, .. } } = self;
        saved.check(engine)?;
        let resume = |saved: &SavedLock| {
            let resume = Resume::new(engine, saved.clone());
            let resume = lease.iter().fold(resume, |resume, lease| resume.lease(*lease));
            let resume = budget.iter().fold(resume, |resume, budget| resume.within(budget));
            Box::pin(resume.resume()) as Task<'_, _>
        };
        let resumes: Vec<_> = saved.locks.iter().map(resume).collect();
        let resumed: Vec<Result<Hold, Error>> = at_once(resumes).await;
        let mut holds = Vec::new();
        let (mut lost, mut unresumed) = (Vec::new(), Vec::new());
        let mut failed = Vec::new();
        for (saved, resumed) in saved.locks.into_iter().zip(resumed) {
            match resumed {
                Ok(hold) => holds.push(hold),
                Err(error) if error.is_lost() => lost.push(saved.key()),
                Err(error) => {
                    failed.push((saved.key(), error));
                    unresumed.push(saved);
                }
            }
        }
        let held = HeldLocks::all_of(engine, budget.clone(), holds);
        if !lost.is_empty() {
            // The others are of no use without these.
            let mut left = Vec::new();
            if let Some(mut held) = held {
                left.extend(held.give_back().await.into_iter().cloned());
            }
            let releases: Vec<_> =
                unresumed.into_iter().map(|saved| release_of(engine, saved, budget.as_ref())).collect();
            left.extend(at_once(releases).await.into_iter().flatten());
            let lost = Error::lost(&lost.iter().collect::<Vec<_>>());
            return Err(lost.and_may_be_held(&left.iter().collect::<Vec<_>>()));
        }
        if let Some(error) = Error::of_some_locks(Operation::Renew, failed) {
            // The saved locks still represent the locks.
            held.iter().for_each(HeldLocks::abandon);
            return Err(error);
        }
        held.map(|held| LockSet { held }).ok_or_else(|| wrong_count(0))
    }
}

/// Releases a lock that was not resumed. Returns its key if it may still be held.
fn release_of(engine: &Arc<Engine>, saved: SavedLock, budget: Option<&Budget>) -> Task<'static, Option<LockKey>> {
    let key = saved.key();
    let release = Release::of_saved(engine, saved);
    let release = budget.into_iter().fold(release, |release, budget| release.within(budget));
    let deadline = release.deadline();
    Box::pin(async move { not_released(&key, Some(release.outcome_by(deadline).await.err()?)) })
}

awaited!(ResumeAll<'a> => Result<LockSet, Error>, |resume| resume.resume());

impl ReclaimAll<'_> {
    async fn reclaim(self) -> Result<LockSet, Error> {
        let Self { engine, saved, terms } = self;
        saved.check(engine)?;
        let wanted = |saved: &SavedLock| {
            Ok(WantedLock {
                key: saved.key(),
                reclaim: Reclaim::Only(saved.parsed_version()?),
                observation: None,
                commit: saved.commit(),
            })
        };
        let options = AcquireAllOptions {
            locks: saved.locks.iter().map(wanted).collect::<Result<_, Invalid>>()?,
            owner: saved.locks[0].owner().to_owned(),
            workflow: saved.locks[0].workflow().map(str::to_owned),
            keeps_attributes: true,
        };
        or_refused(acquire::acquire(engine, options, terms, false).await?)
    }
}

awaited!(ReclaimAll<'a> => Result<LockSet, Error>, |reclaim| reclaim.reclaim());
