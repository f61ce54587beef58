//! Acquire of several locks: the options of the caller, and what the result means.

use super::LockSet;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::{Error, Refusal};
use crate::engine::operation::{Ended, operation_span};
use crate::engine::port::EnginePort;
use crate::lock::awaited::awaited;
use crate::lock::held::{HeldLocks, Hold};
use crate::lock::terms::{Terms, Tried, reported};
use lambda_lock_protocol::{
    self as protocol, AcquireAllOptions, AcquiredAll, AttributesChange, DataChange, FailedAcquire, Failure, Invalid,
    LockKey, Named, Observation, Operation, Reclaim, Rejection, WantedLock,
};
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use tracing::field::Empty;

/// An acquire of several locks before it is awaited. Await it to wait for all of them and get a [`LockSet`], or [try
/// once](AcquireAll::try_once). See [`LockClient::acquire_all`](crate::LockClient::acquire_all) for errors, requests and cancel
/// safety.
#[derive(Debug)]
#[must_use = "an acquire does nothing until it is awaited"]
pub struct AcquireAll<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) keys: Vec<LockKey>,
    pub(super) terms: Terms,
    pub(super) observations: Vec<(LockKey, Observation)>,
}

impl<'a> AcquireAll<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, keys: Vec<LockKey>) -> Self {
        Self { engine, keys, terms: Terms::default(), observations: Vec::new() }
    }

    /// Sets the budget of the work that the locks are for, as [`within`](crate::Acquire::within) does for one lock.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.terms.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Sets the lease of each lock, from 1 ms to 366 days. Default: what the budget needs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Sets the owner that holds the locks: 1 to 2,048 bytes. Default: a name for this acquire alone, as with
    /// [one lock](crate::Acquire::owner).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.terms.owner = Some(owner.into());
        self
    }

    /// Sets the workflow that holds the locks, as [`workflow`](crate::Acquire::workflow) does for one lock. Default:
    /// none.
    pub fn workflow(mut self, workflow: impl Into<String>) -> Self {
        self.terms.workflow = Some(workflow.into());
        self
    }

    /// Sets what an earlier, refused call observed: the [observation](Refusal::observation) of each
    /// [lock that was held](Error::refusals), with its key exactly as it is named there. See [`observation`](crate::Acquire::observation).
    pub fn observations<K: Into<LockKey>>(mut self, seen: impl IntoIterator<Item = (K, Observation)>) -> Self {
        self.observations = seen.into_iter().map(|(key, seen)| (key.into(), seen)).collect();
        self
    }

    /// Acquires the locks even from a living holder of the same [`owner`](AcquireAll::owner), as
    /// [`reclaim_own`](crate::Acquire::reclaim_own) does for one lock. The acquire must name its owner.
    pub fn reclaim_own(mut self) -> Self {
        self.terms.reclaim_own = true;
        self
    }

    /// Checks what can be checked without a request. Returns the owner of this call.
    pub(super) fn checked_owner(&self) -> Result<String, Error> {
        check_keys(self.engine, &self.keys)?;
        let owner = self.terms.owner(self.engine, &self.named())?;
        let settings = &self.engine.settings;
        for key in &self.keys {
            let none = AttributesChange::Replace(Vec::new());
            settings.check_grant(key, &owner, self.terms.workflow.as_deref(), &DataChange::Keep, &none)?;
        }
        Ok(owner)
    }

    pub(super) fn named(&self) -> Vec<&LockKey> {
        self.keys.iter().collect()
    }

    pub(super) fn observation_of(&self, key: &LockKey) -> Option<Observation> {
        self.observations.iter().find(|(seen, _)| seen == key).map(|(_, observation)| observation.clone())
    }

    fn wanted(&self, key: &LockKey) -> WantedLock {
        WantedLock {
            key: key.clone(),
            reclaim: if self.terms.reclaim_own { Reclaim::SameOwner } else { Reclaim::Nobody },
            observation: self.observation_of(key),
            commit: None,
        }
    }

    /// Tries once to acquire the locks. A refusal is not an error: it returns the locks that others hold, and none was granted.
    ///
    /// # Errors
    /// Returns the errors of [`acquire_all`](crate::LockClient::acquire_all), but `Held`.
    ///
    /// # Requests, IAM actions and cancel safety
    /// They are those of [`acquire_all`](crate::LockClient::acquire_all), without waiting.
    pub async fn try_once(self) -> Result<Tried<LockSet, Vec<Refusal>>, Error> {
        Ok(match self.acquire(false).await? {
            Tried::Granted(set) => Tried::Granted(set),
            Tried::Refused((refusals, _)) => Tried::Refused(refusals),
        })
    }

    async fn acquire(self, waits: bool) -> Result<TriedOften, Error> {
        let owner = self.checked_owner()?;
        let locks = self.keys.iter().map(|key| self.wanted(key)).collect();
        let workflow = self.terms.workflow.clone();
        let options = AcquireAllOptions { locks, owner, workflow, keeps_attributes: false };
        acquire(self.engine, options, self.terms, waits).await
    }

    /// How long to wait for other holders.
    pub(super) fn wait(&self) -> Result<Duration, Error> {
        self.terms.wait(&self.named())
    }
}

/// What an acquire of several locks got: the set, or the holders of those that are held and how often it looked.
type TriedOften = Tried<LockSet, (Vec<Refusal>, u32)>;

/// Returns the set. It is an error if some of the locks are held.
pub(super) fn or_refused(tried: TriedOften) -> Result<LockSet, Error> {
    match tried {
        Tried::Granted(set) => Ok(set),
        Tried::Refused((refusals, looks)) => Err(Error::refused(refusals, looks)),
    }
}

/// Checks how many keys there are, each of them, and that no two of them are the same.
pub(super) fn check_keys(engine: &Engine, keys: &[LockKey]) -> Result<(), Error> {
    check_count(keys.len())?;
    for (index, key) in keys.iter().enumerate() {
        engine.check_lock_key(key)?;
        if keys[..index].contains(key) {
            return Err(Invalid::new(format!("the key {} was given twice: give each key once", Named(key))).into());
        }
    }
    Ok(())
}

pub(super) fn check_count(keys: usize) -> Result<(), Error> {
    if keys == 0 || keys > LockSet::MAX { Err(wrong_count(keys)) } else { Ok(()) }
}

pub(super) fn wrong_count(keys: usize) -> Error {
    let text = format!(
        "a call takes 1 to {} locks, but {keys} keys were given: lock what they have in common, or a part of them at a \
         time",
        LockSet::MAX
    );
    Invalid::new(text).into()
}

/// Acquires several locks in one transaction.
pub(super) async fn acquire(
    engine: &Arc<Engine>,
    options: AcquireAllOptions,
    terms: Terms,
    waits: bool,
) -> Result<TriedOften, Error> {
    let keys: Vec<LockKey> = options.locks.iter().map(|lock| lock.key.clone()).collect();
    let named: Vec<&LockKey> = keys.iter().collect();
    let deadline = terms.deadline(engine, &named, waits)?;
    let span = operation_span!(
        "lock_acquire_all", locks = keys.len(), first = %keys[0], owner = options.owner, token = Empty
    );
    let call = async |port: &mut EnginePort<'_>| protocol::acquire_all(port, &engine.settings, options).await;
    let Ended { result, cause, report } = engine.run(&deadline, &span, call).await;
    let tried = match result {
        Ok(AcquiredAll::Granted { holdings, renew_first }) => {
            let holds = holdings.into_iter().map(|holding| Hold::granted(&engine.clock, holding, None));
            match HeldLocks::all_of(engine, terms.budget, holds) {
                Some(held) if renew_first => held.renewed_or_released().instrument(span.clone()).await,
                held => held.ok_or_else(|| wrong_count(0)),
            }
            .map(|held| Tried::Granted(LockSet { held }))
        }
        Ok(AcquiredAll::Held(blocked)) => {
            let refusal = |(index, seen): (usize, _)| Refusal::new(keys[index].clone(), seen);
            Ok(Tried::Refused((blocked.by.into_iter().map(refusal).collect(), blocked.looks)))
        }
        Err(FailedAcquire { failure, of }) => {
            if failure == Failure::OutcomeUnknown {
                span.in_scope(|| {
                    tracing::warn!(
                        locks = keys.len(),
                        "DynamoDB did not answer: if the locks were acquired, they stay held until their leases end"
                    );
                });
            }
            let failure = match failure {
                Failure::Rejected(Rejection::Invalid(message)) => Failure::Rejected(Rejection::Invalid(format!(
                    "{message} (if the table has no transactions, or the rows with their payloads are too large for one, acquire \
                     the locks with .in_order(), or reclaim each of them)"
                ))),
                other => other,
            };
            let of: Vec<&LockKey> =
                if of.is_empty() { named } else { of.into_iter().filter_map(|index| keys.get(index)).collect() };
            Err(Error::of_failure(failure, Operation::Acquire, &of, cause))
        }
    };
    reported(tried, report, &keys[0])
}

awaited!(AcquireAll<'a> => Result<LockSet, Error>, |acquire| async move {
    check_count(acquire.keys.len())?;
    // Fails first if it cannot wait, before it checks the other settings.
    acquire.wait()?;
    or_refused(acquire.acquire(true).await?)
});
