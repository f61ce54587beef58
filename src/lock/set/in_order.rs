//! Acquire of several locks one after the other, by the order of their keys.
//!
//! The locks that the call has are renewed while it waits for the next one. If one of them is lost, the call gives the
//! others back and begins anew.

use super::acquire::{AcquireAll, AcquireAllRequest};
use super::{LockChain, Task, at_once};
use crate::engine::budget::Budget;
use crate::engine::deadline::lease_policy;
use crate::engine::error::{Blocked, Error};
use crate::lock::acquire::{AcquireRequest, TryAcquired, Waiting, may_hold};
use crate::lock::guard::Lock;
use crate::protocol::{LockKey, Observation};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

/// An acquire of several locks in order, before it is awaited. Await it to get a [`LockChain`].
///
/// # Errors
/// Returns the errors of [`acquire`](crate::LockClient::acquire), and releases what it had. A refusal names the one lock
/// that it could not get, see [`Error::blocked`]. Returns `Unknown`, with that error as its source, where a lock could not be
/// released, for whatever reason. It names the locks that may still be held, and the log says why.
///
/// # Requests and IAM actions
/// It sends the requests of [`acquire`](crate::LockClient::acquire) for each lock, one after the other, and renewals of
/// those that it has while it waits: `dynamodb:UpdateItem` and `dynamodb:GetItem`.
///
/// # Cancel safety
/// If the future is dropped, the locks that it had stay held until their leases end.
#[must_use = "an acquire does nothing until it is awaited"]
pub struct AcquireInOrder<'a>(AcquireAllRequest<'a, Waiting>);

/// How the rest of a round ended.
enum Round {
    Granted(Vec<Lock>),
    /// One of the locks was lost meanwhile.
    Again,
}

impl<'a> AcquireAll<'a> {
    /// Acquires the locks one after the other, by the order of their keys, instead of together. Await it to get a
    /// [`LockChain`](crate::LockChain).
    ///
    /// It is right for many keys, for keys that are busy, and for global tables with strong consistency, which have no
    /// transactions. It holds the locks that it has while it waits for the next one, and renews them meanwhile. It never
    /// waits for a key before one that it holds, so callers in order cannot block each other for ever.
    pub fn in_order(self) -> AcquireInOrder<'a> {
        AcquireInOrder(self)
    }
}

impl AcquireInOrder<'_> {
    /// Acquires the locks, runs the work and releases the locks, as [`with_locks`](crate::LockClient::with_locks) does.
    pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut LockChain) -> Result<T, E>,
        E: From<Error>,
    {
        self.await?.run(work).await
    }

    async fn go(mut self) -> Result<LockChain, Error> {
        self.0.wait()?;
        let owner = self.0.engine.owner_of_call(self.0.owner.clone(), self.0.budget.as_ref());
        self.0.check(&owner)?;
        lease_policy(&self.0.named(), self.0.lease, self.0.budget.as_ref())?;
        self.0.keys.sort_by(|one, other| (one.key(), one.sort_key()).cmp(&(other.key(), other.sort_key())));
        let mut seen: Vec<Option<Observation>> = self.0.keys.iter().map(|key| self.0.observation_of(key)).collect();
        loop {
            if let Round::Granted(locks) = self.round(&owner, &mut seen).await? {
                return Ok(LockChain::new(self.0.engine, locks));
            }
        }
    }

    async fn round(&self, owner: &str, seen: &mut [Option<Observation>]) -> Result<Round, Error> {
        let mut locks: Vec<Lock> = Vec::new();
        for (key, seen) in self.0.keys.iter().zip(seen) {
            let lock = loop {
                match self.acquire_next(key, owner, &locks, seen.clone()).await {
                    Ok(TryAcquired::Granted(lock)) => break lock,
                    Ok(TryAcquired::Held(held)) => {
                        if let Err(error) = renew_old(&mut locks).await {
                            return self.unless_lost(locks, error).await;
                        }
                        if self.0.wait()?.is_zero() {
                            let error = Error::from_blocked(vec![Blocked { key: key.clone(), held }], 1);
                            return Err(self.given_back(locks, error).await);
                        }
                        *seen = Some(held.observation);
                    }
                    Err(error) => return Err(self.given_back(locks, error).await),
                }
            };
            locks.push(lock);
        }
        // All of them are returned fresh enough to work with.
        match renew_old(&mut locks).await {
            Ok(()) => Ok(Round::Granted(locks)),
            Err(error) => self.unless_lost(locks, error).await,
        }
    }

    /// Waits for this lock as long as the locks that the call has need no renewal.
    async fn acquire_next(
        &self,
        key: &LockKey,
        owner: &str,
        locks: &[Lock],
        seen: Option<Observation>,
    ) -> Result<TryAcquired, Error> {
        let Self(AcquireAllRequest { engine, workflow, lease, budget, reclaim_own, .. }) = self;
        let mut request = AcquireRequest::<Waiting>::new(engine, key.clone()).owner(owner);
        request = workflow.iter().fold(request, |request, workflow| request.workflow(workflow));
        request = lease.iter().fold(request, |request, lease| request.lease(*lease));
        request = budget.iter().fold(request, |request, budget| request.within(budget));
        request = seen.into_iter().fold(request, AcquireRequest::observation);
        if *reclaim_own {
            request = request.reclaim_own();
        }
        let until_renewal = locks.iter().map(until_renewal).min().unwrap_or(Duration::MAX);
        request.go(|request| Ok(request.wait()?.min(until_renewal))).await
    }

    /// Gives the locks back, and returns why.
    async fn given_back(&self, locks: Vec<Lock>, why: Error) -> Error {
        let mut chain = LockChain::new(self.0.engine, locks);
        given_up(&chain.give_back().await, why)
    }

    /// A lock that was lost while the call waited is no reason to give up.
    async fn unless_lost(&self, locks: Vec<Lock>, error: Error) -> Result<Round, Error> {
        let ends = !locks.iter().any(Lock::is_lost) || self.0.wait()?.is_zero();
        let mut chain = LockChain::new(self.0.engine, locks);
        let left = chain.give_back().await;
        // A lock that stays behind would refuse the next round.
        if ends || !left.is_empty() { Err(given_up(&left, error)) } else { Ok(Round::Again) }
    }
}

/// The error of a call that gave its locks back. Some may have stayed behind.
fn given_up(left: &[&LockKey], why: Error) -> Error {
    if left.is_empty() { why } else { may_hold(left, why) }
}

/// How long until half of the lease has passed, or all of it where a renewal can hardly extend it.
fn until_renewal(lock: &Lock) -> Duration {
    let bounds = lock.engine.clock_bounds();
    let lease = bounds.believed(lock.hold.holding.lease.duration());
    let remaining = lock.remaining();
    let covered =
        lock.budget.as_ref().and_then(Budget::to_cover).map_or(lease, |rest| bounds.believed(rest).min(lease));
    if covered < remaining + lease / 10 { remaining } else { remaining.saturating_sub(lease / 2) }
}

/// Renews the locks of which less than half of the lease is left.
async fn renew_old(locks: &mut [Lock]) -> Result<(), Error> {
    let old = locks.iter_mut().filter(|lock| until_renewal(lock).is_zero());
    at_once(old.map(|lock| Box::pin(renewed(lock)) as Task<'_, _>)).await.into_iter().collect()
}

async fn renewed(lock: &mut Lock) -> Result<(), Error> {
    match lock.checkpoint().await {
        // A lease that ends with the budget cannot be extended.
        Ok(()) => lock.ensure_remaining(Duration::ZERO),
        Err(error) if error.is_lost() || lock.remaining().is_zero() => Err(error),
        Err(_) => Ok(()),
    }
}

impl<'a> IntoFuture for AcquireInOrder<'a> {
    type Output = Result<LockChain, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.go())
    }
}

impl fmt::Debug for AcquireInOrder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireInOrder").field("keys", &self.0.keys).finish_non_exhaustive()
    }
}
