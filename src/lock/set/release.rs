//! Release of several locks, by their holder or after its work.

use super::super::release::{Release, Sleeper, not_released};
use super::resume::SavedLockSet;
use super::{HeldLocks, Task, at_once};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::{Error, ErrorKind};
use crate::engine::report;
use crate::lock::guard::Lock;
use lambda_lock_protocol::{LockKey, Operation, Released, SavedLock};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

/// What a release of several locks found. There is no third case, so a `match` needs no `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseAllOutcome {
    /// All of them are free.
    Released,
    /// The rows of these locks no longer have this grant. The others are free.
    AlreadyGone(Vec<LockKey>),
}

/// A release of several locks before it is awaited. Await it to get a [`ReleaseAllOutcome`].
///
/// # Errors
/// Returns the errors of [`ReleaseRequest`](crate::ReleaseRequest). [`Error::may_be_held`] has each lock whose release was refused
/// or is of unknown outcome. Their leases free them.
///
/// # Requests and IAM actions
/// It sends the requests of [`ReleaseRequest`](crate::ReleaseRequest) for each lock, up to eight at once: `dynamodb:UpdateItem`.
/// The time of the release is that of all of them together.
///
/// # Cancel safety
/// If the future is dropped, each lock may or may not be released, and its lease frees it.
#[must_use = "a release does nothing until it is awaited, and until then the locks stay taken"]
pub struct ReleaseAll {
    releases: Vec<(LockKey, Release)>,
    checked: Result<(), Error>,
}

impl<Grants> HeldLocks<Grants> {
    /// Releases all of the locks. This call ends the guard, whatever the responses are.
    pub fn release(self) -> ReleaseAll {
        // Each release ends its guard.
        let releases = self.locks.into_iter().map(|lock| (lock.key().clone(), lock.release())).collect();
        ReleaseAll { releases, checked: Ok(()) }
    }

    /// Releases after the work of `run`, and returns what the caller gets.
    pub(super) async fn end_work<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        match result {
            Ok(done) => {
                self.finish_work().await?;
                Ok(done)
            }
            Err(error) => {
                self.finish().await;
                Err(error)
            }
        }
    }

    /// Releases after work that succeeded. The caller must learn if a lock was lost before, because another holder may
    /// have worked at the same time.
    async fn finish_work(mut self) -> Result<(), Error> {
        if self.is_lost() {
            let error = Error::lost_by_work(&self.lost());
            return Err(error.and_may_be_held(&self.finish_lost().await));
        }
        let (mut lost, mut left) = (Vec::new(), Vec::new());
        for (key, released) in self.release().outcomes().await {
            match released {
                Ok(Released::Lost) => lost.push(key),
                Ok(Released::Released { .. }) => {}
                Ok(Released::WithoutData(_) | Released::AlreadyGone) => not_released(&key, None),
                Err(error) => {
                    not_released(&key, Some(error));
                    left.push(key);
                }
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let error = Error::lost_by_work(&lost.iter().collect::<Vec<_>>());
        Err(error.and_may_be_held(&left.iter().collect::<Vec<_>>()))
    }

    /// Releases after work that was stopped because a lease ended.
    pub(super) async fn cut_short(mut self) -> Error {
        let keys: Vec<LockKey> = self.keys().cloned().collect();
        let named: Vec<&LockKey> = keys.iter().collect();
        tracing::warn!(locks = keys.len(), first = %named[0], "a lease ended while the work ran: the work was stopped");
        report::cut_short(&self.engine, named[0]);
        if self.is_lost() {
            let error = self.lost_error();
            return error.and_may_be_held(&self.finish_lost().await);
        }
        let (all_released, left) = self.release_all().await;
        Error::cut_short(&named, all_released).and_may_be_held(&left.iter().collect::<Vec<_>>())
    }

    /// Releases the locks. A failure is logged, because the leases free the locks. Returns those that may still be held.
    pub(super) async fn finish(mut self) -> Vec<LockKey> {
        if self.is_lost() {
            return self.finish_lost().await.into_iter().cloned().collect();
        }
        self.release_all().await.1
    }

    /// Releases the locks. Returns whether all of them were released, and those that may still be held. Failures are logged.
    async fn release_all(self) -> (bool, Vec<LockKey>) {
        let (mut all_released, mut left) = (true, Vec::new());
        for (key, released) in self.release().outcomes().await {
            if matches!(released, Ok(Released::Released { .. })) {
                continue;
            }
            all_released = false;
            let error = released.err();
            left.extend(error.is_some().then(|| key.clone()));
            not_released(&key, error);
        }
        (all_released, left)
    }

    /// Gives the others back where one lock is known to be lost, unless that was done already. Returns those that may still be held.
    async fn finish_lost(&mut self) -> Vec<&LockKey> {
        self.give_back().await;
        self.locks.iter().for_each(Lock::abandon);
        self.left.iter().flatten().collect()
    }

    pub(super) fn lost(&self) -> Vec<&LockKey> {
        self.locks.iter().filter(|lock| lock.is_lost()).map(Lock::key).collect()
    }
}

impl ReleaseAll {
    pub(crate) fn of_saved(engine: &Arc<Engine>, saved: &SavedLockSet) -> Self {
        let release = |saved: &SavedLock| (saved.key(), Release::of_saved(engine, saved.clone()));
        Self { releases: saved.locks().iter().map(release).collect(), checked: saved.check_each(engine) }
    }

    /// Sets the time that the release may take. Default: the budget of the locks, or else three request timeouts.
    pub fn within(self, budget: &Budget) -> Self {
        self.with_each(|release| release.within(budget))
    }

    /// Also releases later grants of the same owner, as [`Release::or_later_grant_of_owner`] does.
    pub fn or_later_grant_of_owner(self) -> Self {
        self.with_each(Release::or_later_grant_of_owner)
    }

    fn with_each(self, change: impl Fn(Release) -> Release) -> Self {
        let releases = self.releases.into_iter().map(|(key, release)| (key, change(release))).collect();
        Self { releases, checked: self.checked }
    }

    async fn outcomes(self) -> Vec<(LockKey, Result<Released, Error>)> {
        let releases = self.releases.into_iter().map(|(key, release)| {
            let outcome = release.outcome();
            Box::pin(async { (key, outcome.await) }) as Task<'static, _>
        });
        at_once(releases).await
    }

    /// Releases the locks, and tells whom to wake, as [`Release::with_sleeper`](crate::Release::with_sleeper) does of each lock. It
    /// tells so also where the release of another lock failed.
    pub async fn with_sleepers(self) -> (Result<ReleaseAllOutcome, Error>, Vec<Sleeper>) {
        let mut sleepers = Vec::new();
        let released = self.with_each(Release::telling_sleeper).release(&mut sleepers).await;
        (released, sleepers)
    }

    async fn release(mut self, sleepers: &mut Vec<Sleeper>) -> Result<ReleaseAllOutcome, Error> {
        std::mem::replace(&mut self.checked, Ok(()))?;
        let mut gone = Vec::new();
        let mut failed = Vec::new();
        for (key, released) in self.outcomes().await {
            match released {
                Ok(Released::Released { to_wake }) => {
                    sleepers.extend(to_wake.map(|tickets| Sleeper::new(key, tickets)));
                }
                Ok(_) => gone.push(key),
                Err(error) => failed.push((key, error)),
            }
        }
        match Error::of_some_locks(Operation::Release, failed) {
            Some(error) => Err(error),
            None if gone.is_empty() => Ok(ReleaseAllOutcome::Released),
            None => Ok(ReleaseAllOutcome::AlreadyGone(gone)),
        }
    }
}

/// Whether the same call may succeed later.
pub(super) fn may_succeed_later(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable)
}

impl IntoFuture for ReleaseAll {
    type Output = Result<ReleaseAllOutcome, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.release(&mut Vec::new()).await })
    }
}

impl fmt::Debug for ReleaseAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.releases.iter().map(|(key, _)| key).collect();
        f.debug_struct("ReleaseAll").field("keys", &keys).finish_non_exhaustive()
    }
}
