//! Acquire of several locks: the options of the caller, and what the result means.

use super::{LockSet, MAX_LOCKS};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::lease_policy;
use crate::engine::error::{Blocked, Error};
use crate::engine::port::EnginePort;
use crate::lock::acquire::{Trying, Waiting, run};
use crate::lock::held::{HeldLocks, Hold};
use lambda_lock_protocol::{
    self as protocol, AcquireAllOptions, AcquiredAll, AttributesChange, DataChange, FailedAcquire, Failure, Invalid,
    LockKey, Named, Observation, Operation, Reclaim, Rejection, WantedLock,
};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use tracing::field::Empty;

/// An acquire of several locks that waits for all of them. Await it to get a [`LockSet`].
pub type AcquireAll<'a> = AcquireAllRequest<'a, Waiting>;

/// An acquire of several locks that tries once. Await it to get a [`TryAcquiredAll`].
pub type TryAcquireAll<'a> = AcquireAllRequest<'a, Trying>;

/// The result of a try. All locks were granted, or none, and neither is an error.
#[derive(Debug)]
#[must_use = "the locks may have been granted"]
pub enum TryAcquiredAll {
    /// All locks are ours.
    Granted(LockSet),
    /// Others hold these locks, and none was granted.
    Blocked(Vec<Blocked>),
}

impl TryAcquiredAll {
    /// Returns the locks, if they were granted.
    pub fn granted(self) -> Option<LockSet> {
        match self {
            TryAcquiredAll::Granted(set) => Some(set),
            TryAcquiredAll::Blocked(_) => None,
        }
    }
}

/// An acquire of several locks before it is awaited. See [`LockClient::acquire_all`](crate::LockClient::acquire_all) and
/// [`LockClient::try_acquire_all`](crate::LockClient::try_acquire_all) for errors, requests and cancel safety.
#[must_use = "an acquire does nothing until it is awaited"]
pub struct AcquireAllRequest<'a, Mode> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) keys: Vec<LockKey>,
    pub(super) owner: Option<String>,
    pub(super) workflow: Option<String>,
    pub(super) lease: Option<Duration>,
    pub(super) budget: Option<Budget>,
    pub(super) observations: Vec<(LockKey, Observation)>,
    pub(super) reclaim_own: bool,
    mode: PhantomData<fn() -> Mode>,
}

impl<'a, Mode> AcquireAllRequest<'a, Mode> {
    pub(crate) fn new(engine: &'a Arc<Engine>, keys: Vec<LockKey>) -> Self {
        Self {
            engine,
            keys,
            owner: None,
            workflow: None,
            lease: None,
            budget: None,
            observations: Vec::new(),
            reclaim_own: false,
            mode: PhantomData,
        }
    }

    /// Sets the budget of the work that the locks are for, as [`within`](crate::Acquire::within) does for one lock.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.on(self.engine.clock()));
        self
    }

    /// Sets the lease of each lock, from 1 ms to 366 days. Default: what the budget needs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the owner that holds the locks: 1 to 2,048 bytes. Default: a name for this acquire alone, as with
    /// [one lock](crate::Acquire::owner).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the workflow that holds the locks, as [`workflow`](crate::Acquire::workflow) does for one lock. Default:
    /// none.
    pub fn workflow(mut self, workflow: impl Into<String>) -> Self {
        self.workflow = Some(workflow.into());
        self
    }

    /// Sets what an earlier, refused call observed: the [observation](crate::Held::observation) of each
    /// [blocked](Blocked) lock, with its key exactly as it is named there. See [`observation`](crate::Acquire::observation).
    pub fn observations<K: Into<LockKey>>(mut self, seen: impl IntoIterator<Item = (K, Observation)>) -> Self {
        self.observations = seen.into_iter().map(|(key, seen)| (key.into(), seen)).collect();
        self
    }

    /// Acquires the locks even from a living holder of the same [`owner`](AcquireAllRequest::owner), as
    /// [`reclaim_own`](crate::Acquire::reclaim_own) does for one lock. The acquire must name its owner.
    pub fn reclaim_own(mut self) -> Self {
        self.reclaim_own = true;
        self
    }

    /// Checks what can be checked without a request.
    pub(super) fn check(&self, owner: &str) -> Result<(), Error> {
        check_keys(self.engine, &self.keys)?;
        if self.reclaim_own && self.owner.is_none() {
            return Err(Invalid::new(
                "reclaim_own takes the locks from a holder of the same name, and this acquire names nobody: name one \
                 holder with .owner(…)",
            )
            .into());
        }
        let settings = self.engine.settings();
        for key in &self.keys {
            let none = AttributesChange::Replace(Vec::new());
            settings.check_grant(key, owner, self.workflow.as_deref(), &DataChange::Keep, &none)?;
        }
        Ok(())
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
            reclaim: if self.reclaim_own { Reclaim::SameOwner } else { Reclaim::Nobody },
            observation: self.observation_of(key),
            token: None,
            commit: None,
        }
    }

    async fn acquire(self, waits: bool) -> Result<TryAcquired, Error> {
        let owner = self.engine.owner_of_call(self.owner.clone(), self.budget.as_ref());
        self.check(&owner)?;
        let locks = self.keys.iter().map(|key| self.wanted(key)).collect();
        let options = AcquireAllOptions { locks, owner, workflow: self.workflow.clone(), keeps_attributes: false };
        acquire(self.engine, options, self.lease, self.budget, waits).await
    }
}

/// What an acquire of several locks got: the set, or the holders of those that are held and how often it looked.
pub(super) enum TryAcquired {
    Granted(LockSet),
    Blocked(Vec<Blocked>, u32),
}

impl TryAcquired {
    /// Returns the set. It is an error if some of the locks are held.
    pub(super) fn or_blocked(self) -> Result<LockSet, Error> {
        match self {
            TryAcquired::Granted(set) => Ok(set),
            TryAcquired::Blocked(blocked, looks) => Err(Error::from_blocked(blocked, looks)),
        }
    }
}

/// Checks how many keys there are, and that no two of them are the same.
pub(super) fn check_keys(engine: &Engine, keys: &[LockKey]) -> Result<(), Error> {
    check_count(keys.len())?;
    check_distinct(engine, keys)
}

/// Checks the keys, and that no two of them are the same.
pub(in crate::lock) fn check_distinct(engine: &Engine, keys: &[LockKey]) -> Result<(), Error> {
    for (index, key) in keys.iter().enumerate() {
        engine.check_lock_key(key)?;
        if keys[..index].contains(key) {
            return Err(Invalid::new(format!("the key {} was given twice: give each key once", Named(key))).into());
        }
    }
    Ok(())
}

pub(super) fn check_count(keys: usize) -> Result<(), Error> {
    if keys == 0 || keys > MAX_LOCKS { Err(wrong_count(keys)) } else { Ok(()) }
}

pub(super) fn wrong_count(keys: usize) -> Error {
    let text = format!(
        "a call acquires 1 to {MAX_LOCKS} locks, but {keys} keys were given: lock what they have in common, or a part of \
         them at a time"
    );
    Invalid::new(text).into()
}

/// Acquires several locks in one transaction.
pub(super) async fn acquire(
    engine: &Arc<Engine>,
    options: AcquireAllOptions,
    lease: Option<Duration>,
    budget: Option<Budget>,
    waits: bool,
) -> Result<TryAcquired, Error> {
    let keys: Vec<LockKey> = options.locks.iter().map(|lock| lock.key.clone()).collect();
    let named: Vec<&LockKey> = keys.iter().collect();
    let lease = lease_policy(&named, lease, budget.as_ref())?;
    // The clock is read for the deadline before it is read for the wait, so that a pause in between adds no time.
    let deadline = engine.deadline(lease, budget.as_ref());
    let wait = budget.as_ref().and_then(Budget::wait).filter(|_| waits);
    let deadline = deadline.waiting(wait.unwrap_or_default(), budget.as_ref());
    let span = tracing::info_span!(
        "lock_acquire_all", locks = keys.len(), first = %keys[0], owner = options.owner, token = Empty, attempts = Empty,
        waited_ms = Empty, outcome = Empty
    );
    let mut port = EnginePort::new(engine, &deadline, &span);
    let acquired = protocol::acquire_all(&mut port, engine.settings(), options).await;
    let (cause, report) = port.end();
    let acquired = match acquired {
        Ok(AcquiredAll::Granted { holdings, renew_first }) => {
            let holds = holdings.into_iter().map(|holding| Hold::granted(engine.clock(), holding, None));
            match HeldLocks::all_of(engine, budget.clone(), holds) {
                Some(held) if renew_first => held.renewed_or_released().instrument(span.clone()).await,
                held => held.ok_or_else(|| wrong_count(0)),
            }
            .map(|held| TryAcquired::Granted(LockSet { held }))
        }
        Ok(AcquiredAll::Held(blocked)) => {
            let by = blocked.by.into_iter();
            let by = by.map(|(index, seen)| Blocked { key: keys[index].clone(), held: seen.into() }).collect();
            Ok(TryAcquired::Blocked(by, blocked.looks))
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
                    "{message} (if the table has no transactions, acquire the locks with .in_order())"
                ))),
                other => other,
            };
            let of: Vec<&LockKey> =
                if of.is_empty() { named } else { of.into_iter().filter_map(|index| keys.get(index)).collect() };
            Err(Error::of_failed_locks(failure, Operation::Acquire, &of, cause))
        }
    };
    match &acquired {
        Ok(TryAcquired::Granted(set)) => report.granted("acquire", &keys[0], set.held.first.holding.token),
        Ok(TryAcquired::Blocked(..)) => report.ended("acquire", &keys[0], "held"),
        Err(error) => report.failed("acquire", &keys[0], error),
    }
    acquired
}

impl AcquireAll<'_> {
    /// Acquires the locks, runs the work and releases the locks, as [`with_locks`](crate::LockClient::with_locks) does,
    /// with the settings of this request.
    pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut LockSet) -> Result<T, E>,
        E: From<Error>,
    {
        run(self.await?, work).await
    }

    /// Returns how long to wait for other holders.
    pub(super) fn wait(&self) -> Result<Duration, Error> {
        self.budget.as_ref().and_then(Budget::wait).ok_or_else(|| {
            Invalid::new(
                "acquire_all waits for the locks and needs to know for how long: give a budget with a known end, \
                 .within(&budget), or use try_acquire_all to try once",
            )
            .into()
        })
    }
}

impl<'a> IntoFuture for AcquireAllRequest<'a, Waiting> {
    type Output = Result<LockSet, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            // Fails first if it cannot wait, before it checks the other settings.
            self.wait()?;
            self.acquire(true).await?.or_blocked()
        })
    }
}

impl<'a> IntoFuture for AcquireAllRequest<'a, Trying> {
    type Output = Result<TryAcquiredAll, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            Ok(match self.acquire(false).await? {
                TryAcquired::Granted(set) => TryAcquiredAll::Granted(set),
                TryAcquired::Blocked(blocked, _) => TryAcquiredAll::Blocked(blocked),
            })
        })
    }
}

impl<Mode> fmt::Debug for AcquireAllRequest<'_, Mode> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireAllRequest")
            .field("keys", &self.keys)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
