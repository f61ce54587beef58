//! Release: ends a grant, from its guard, from a saved lock, or for a workflow that ended.

use super::at_once::{Task, at_once};
use super::awaited::awaited;
use super::guard::Lock;
use super::held::{Guard, HeldLocks, Hold};
use super::validity::Standing;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::{Deadline, LeasePolicy};
use crate::engine::error::{Error, ErrorKind};
use crate::engine::operation::{Ended, operation_span};
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{
    self as protocol, DataChange, Invalid, LockKey, Named, Operation, ReleaseOptions, Released, SavedLock,
    millis_rounded_up,
};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

impl Lock {
    /// Releases the lock. This call ends the guard, whatever the response to the release is.
    ///
    /// ```no_run
    /// # async fn example(lock: lambda_lock::Lock) -> Result<(), lambda_lock::Error> {
    /// use lambda_lock::ReleaseOutcome;
    /// match lock.release().await? {
    ///     ReleaseOutcome::Released => {}
    ///     ReleaseOutcome::AlreadyGone => { /* ours no more: fenced writes were refused */ }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Release {
        let held = self.into_held();
        held.abandon();
        let HeldLocks { engine, budget, first, .. } = held;
        Release::of_hold(engine, first, budget)
    }
}

impl HeldLocks {
    /// The releases of all locks. From here on the guard is over, whatever the responses are.
    pub(super) fn releases(self) -> Vec<(LockKey, Release)> {
        self.abandon();
        let (engine, budget) = (self.engine.clone(), self.budget.clone());
        let release = |hold: Hold| (hold.key().clone(), Release::of_hold(engine.clone(), hold, budget.clone()));
        self.into_holds().map(release).collect()
    }
}

/// Sends the releases at once.
pub(super) async fn outcomes(releases: Vec<(LockKey, Release)>) -> Vec<(LockKey, Result<Released, Error>)> {
    let releases = releases.into_iter().map(|(key, release)| {
        let deadline = release.deadline();
        Box::pin(async move { (key, release.outcome_by(deadline).await) }) as Task<'static, _>
    });
    at_once(releases).await
}

fn released_without_data(key: &LockKey, invalid: &Invalid) -> Error {
    let key = Named(key);
    Error::new(ErrorKind::InvalidRequest, format!("the lock {key} was released, but without its data: {invalid}"))
}

/// What a release found. There is no third case, so a `match` needs no `_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock is free. This is also returned when it was released before.
    Released,
    /// The row no longer has this grant, or an operator has broken it. The grant was released and the lock acquired again, or it was
    /// lost before. The row does not show which. The current holder keeps its lock.
    AlreadyGone,
}

/// The caller whose turn it is to acquire a lock that was released, while somebody in line [sleeps between its
/// calls](crate::Acquire::between_calls). Perhaps it is not asleep itself: whoever wakes others knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sleeper {
    /// The key of the lock, with its prefix.
    pub key: LockKey,
    /// Its [ticket](crate::Observation::ticket).
    pub ticket: u64,
    /// The last ticket of those who sleep in line. If the caller whose turn it is has gone, wake the next one of them: it passes
    /// those ahead that do not come.
    pub last: u64,
}

impl Sleeper {
    pub(super) fn new(key: LockKey, tickets: RangeInclusive<u64>) -> Self {
        let (ticket, last) = tickets.into_inner();
        Self { key, ticket, last }
    }
}

/// A release of a lock that is held or saved, before it is awaited. Await it to get a [`ReleaseOutcome`].
///
/// # Errors
/// Returns [`Unknown`](crate::ErrorKind::Unknown): the lock is free at the latest when its lease ends. Returns
/// `Unavailable`, `InvalidRequest`, `InvalidRecord`, `Table` or `Denied`.
///
/// # Requests and IAM actions
/// It sends one write: `dynamodb:UpdateItem`. It sends a second write after a response was lost, or when a copy of the
/// lock renewed it in another process. It sends one consistent read (`dynamodb:GetItem`) when DynamoDB refuses the write
/// and returns no row.
///
/// # Cancel safety
/// If the future is dropped, the lock may or may not be released, and its lease frees it. A release of a [saved
/// lock](crate::LockClient::release) is safe to repeat.
#[must_use = "a release does nothing until it is awaited, and until then the lock stays taken"]
pub struct Release {
    engine: Arc<Engine>,
    what: Result<What, Error>,
    budget: Option<Budget>,
    options: ReleaseOptions,
}

/// A release for a workflow, before it is awaited. Await it to get a [`ReleaseOutcome`]. See
/// [`LockClient::release_workflow`](crate::LockClient::release_workflow) for requests, and [`Release`] for errors
/// and cancel safety.
#[must_use = "a release does nothing until it is awaited, and until then the lock stays taken"]
pub struct ReleaseWorkflow(Release);

/// Returns whether a release for a workflow leaves the lock of this owner alone.
type Spares = dyn Fn(&str) -> bool + Send + Sync;

/// What is to be released.
enum What {
    Grant(Hold),
    Workflows { key: LockKey, workflow: String, spared: Box<Spares> },
}

impl What {
    fn key(&self) -> &LockKey {
        match self {
            What::Grant(hold) => &hold.holding.key,
            What::Workflows { key, .. } => key,
        }
    }

    /// The owner that holds the lock, if it is known.
    fn owner(&self) -> Option<&str> {
        match self {
            What::Grant(hold) => Some(&hold.holding.owner),
            What::Workflows { .. } => None,
        }
    }

    /// The time since the lease began, by our wall clock.
    fn lease_age(&self, now_ms: u64) -> Option<Duration> {
        let What::Grant(Hold { holding, .. }) = self else { return None };
        let end = now_ms.saturating_add(millis_rounded_up(holding.lease.duration()));
        Some(Duration::from_millis(end.saturating_sub(holding.ends_at_ms)))
    }
}

impl Release {
    fn new(engine: Arc<Engine>, what: Result<What, Error>, budget: Option<Budget>) -> Self {
        Self { engine, what, budget, options: ReleaseOptions::default() }
    }

    pub(crate) fn of_hold(engine: Arc<Engine>, hold: Hold, budget: Option<Budget>) -> Self {
        Self::new(engine, Ok(What::Grant(hold)), budget)
    }

    pub(crate) fn of_saved(engine: &Arc<Engine>, saved: SavedLock) -> Self {
        let settings = &engine.settings;
        let clock = &engine.clock;
        let holding = engine.check_saved(&saved).and_then(|()| saved.holding(clock.now(), settings));
        let what = holding.map(|holding| What::Grant(Hold::of_nobody(clock, holding))).map_err(Error::from);
        Self::new(engine.clone(), what, None)
    }

    /// Sets the time that the release may take. Default: the budget of the guard. For a saved lock, three request timeouts.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Leaves a payload in the row for the next holder, or removes it: [`DataChange::Remove`]. Default: the row keeps its payload. If
    /// the payload does not fit into a row, the lock is released without it, and the release returns the error `InvalidRequest`.
    pub fn data(mut self, data: impl Into<DataChange>) -> Self {
        self.options.data = data.into();
        self
    }

    /// Also releases a *later* grant of the same owner. A retried task then releases the lock that its first run had
    /// acquired again, if the response of that run was lost. Use this only with owners that name one holder.
    pub fn or_later_grant_of_owner(mut self) -> Self {
        self.options.or_later_grant_of_owner = true;
        self
    }

    /// Releases the lock, and tells whom to wake: whoever is next in line, if somebody in line [sleeps between its
    /// calls](crate::Acquire::between_calls). The response shows it, so this costs no request. Repeat a release whose
    /// caller ended before it had woken anybody: it tells the same, as long as the lock is free.
    ///
    /// # Errors
    /// Those of [`Release`].
    pub async fn with_sleeper(self) -> Result<(ReleaseOutcome, Option<Sleeper>), Error> {
        let key = self.what.as_ref().ok().map(|what| what.key().clone());
        match self.telling_sleeper().outcome().await? {
            Released::Released { to_wake } => {
                let sleeper = key.zip(to_wake).map(|(key, tickets)| Sleeper::new(key, tickets));
                Ok((ReleaseOutcome::Released, sleeper))
            }
            _ => Ok((ReleaseOutcome::AlreadyGone, None)),
        }
    }

    /// Asks also whom to wake.
    pub(super) fn telling_sleeper(mut self) -> Self {
        self.options.tells_sleeper = true;
        self
    }

    async fn release(self) -> Result<ReleaseOutcome, Error> {
        match self.outcome().await? {
            Released::Released { .. } => Ok(ReleaseOutcome::Released),
            _ => Ok(ReleaseOutcome::AlreadyGone),
        }
    }

    /// The time that the release may take, from now on. Several releases at once take it together, before the first of them is polled.
    pub(super) fn deadline(&self) -> Deadline {
        // Even when the budget is spent, the release waits for one response.
        let deadline = self.engine.deadline(LeasePolicy::None, self.budget.as_ref());
        deadline.at_least(self.engine.request_timeout / 4)
    }

    async fn outcome(self) -> Result<Released, Error> {
        let deadline = self.deadline();
        self.outcome_by(deadline).await
    }

    /// Returns [`Released`](Released::Released), [`Lost`](Released::Lost) or [`AlreadyGone`](Released::AlreadyGone).
    pub(super) async fn outcome_by(mut self, deadline: Deadline) -> Result<Released, Error> {
        let what = self.what?;
        let key = what.key().clone();
        let settings = &self.engine.settings;
        // A payload that is too large must not stop the release, because nobody else can release the lock any more.
        let owner = what.owner().unwrap_or_else(|| self.engine.owner());
        let too_large = settings.check_write(&key, owner, None, &self.options.data).err();
        if too_large.is_some() {
            self.options.data = DataChange::Keep;
        }
        let options = self.options;
        let span = operation_span!("lock_release", %key);
        let lease_age = what.lease_age(self.engine.wall_clock.reading(self.engine.clock.now()).millis);
        let call = async |port: &mut EnginePort<'_>| match what {
            What::Grant(hold) => {
                let released = protocol::release(port, settings, &hold.holding, options).await;
                if released == Ok(Released::Lost) {
                    hold.validity.set(Standing::Lost);
                }
                released
            }
            What::Workflows { key, workflow, spared } => {
                protocol::release_workflow(port, settings, &key, &workflow, |owner| spared(owner), options).await
            }
        };
        let Ended { result, cause, report } = self.engine.run(&deadline, &span, call).await;
        let released = match result {
            Ok(Released::WithoutData(reason)) => Err(released_without_data(&key, &Invalid::new(reason))),
            Ok(released @ Released::Released { .. }) => match too_large {
                Some(invalid) => Err(released_without_data(&key, &invalid)),
                None => Ok(released),
            },
            Ok(gone) => Ok(gone),
            Err(failure) => Err(Error::of_failure(failure, Operation::Release, &[&key], cause)),
        };
        match &released {
            Ok(Released::Released { .. }) => report.released(&key, lease_age, "Released"),
            Ok(gone) => report.released(&key, lease_age, &format!("{gone:?}")),
            Err(error) => report.failed("release", &key, error),
        }
        released
    }
}

impl ReleaseWorkflow {
    pub(crate) fn of_workflow(engine: &Arc<Engine>, key: LockKey, workflow: String) -> Self {
        let settings = &engine.settings;
        let checked = engine
            .check_lock_key(&key)
            .and_then(|()| settings.check_write(&key, engine.owner(), Some(&workflow), &DataChange::Keep));
        let what =
            checked.map(|()| What::Workflows { key, workflow, spared: Box::new(|_| false) }).map_err(Error::from);
        Self(Release::new(engine.clone(), what, None))
    }

    /// Sets the time that the release may take. Default: three request timeouts.
    pub fn within(self, budget: &Budget) -> Self {
        Self(self.0.within(budget))
    }

    /// Leaves a payload in the row for the next holder, or removes it, as [`Release::data`] does.
    pub fn data(self, data: impl Into<DataChange>) -> Self {
        Self(self.0.data(data))
    }

    /// Releases the lock, and tells whom to wake, as [`Release::with_sleeper`] does.
    pub async fn with_sleeper(self) -> Result<(ReleaseOutcome, Option<Sleeper>), Error> {
        self.0.with_sleeper().await
    }

    /// Leaves the lock alone when this function returns `true` for its owner. A Step Functions execution that was
    /// redriven keeps its old ARN. If owners name the attempt that they belong to, a late clean-up of an earlier
    /// attempt can spare those of the later attempt. The decision is made on exactly the version that would be
    /// released. Default: no owner is spared.
    pub fn sparing_owners(mut self, those: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        if let Ok(What::Workflows { spared, .. }) = &mut self.0.what {
            *spared = Box::new(those);
        }
        self
    }
}

awaited!(Release => Result<ReleaseOutcome, Error>, |release| release.release());

awaited!(ReleaseWorkflow => Result<ReleaseOutcome, Error>, |release| release.0.release());

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.what.as_ref().map(What::key).ok();
        f.debug_struct("Release").field("key", &key).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReleaseWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.0.what.as_ref().map(What::key).ok();
        f.debug_struct("ReleaseWorkflow").field("key", &key).finish_non_exhaustive()
    }
}

/// Only a release for a workflow spares owners. Only a release of a grant covers a later grant of the owner.
///
/// ```no_run
/// # fn f(locks: &lambda_lock::LockClient, saved: lambda_lock::SavedLock) {
/// let _ = locks.release_workflow("k", "arn").sparing_owners(|owner| owner == "me");
/// let _ = locks.release(saved).or_later_grant_of_owner();
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn f(lock: lambda_lock::Lock) {
/// let _ = lock.release().sparing_owners(|owner| owner == "me");
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn f(locks: &lambda_lock::LockClient) {
/// let _ = locks.release_workflow("k", "arn").or_later_grant_of_owner();
/// # }
/// ```
#[cfg(doctest)]
struct ReleasesIgnoreNoSetting;
