//! Several locks that one call acquired, and for how long the caller may rely on all of them.

pub(crate) mod acquire;
pub(crate) mod commit;
pub(crate) mod in_order;
pub(crate) mod release;
pub(crate) mod resume;

use super::guard::{Hold, Lock};
use super::release::{Release, not_released};
use super::renew::{self, Renewable};
use super::validity::SharedValidities;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use futures_util::{FutureExt, StreamExt, stream};
use lambda_lock_protocol::{LockKey, Operation};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How many locks one call acquires at most.
pub const MAX_LOCKS: usize = 25;

/// How many requests of a set are in flight at once.
const MAX_IN_FLIGHT: usize = 8;

/// Marks locks that one transaction acquired, all or none.
#[derive(Debug)]
pub enum Together {}

/// Marks locks that were acquired one after the other.
#[derive(Debug)]
pub enum InOrder {}

/// Several held locks that were acquired together, with one fencing token. See
/// [`acquire_all`](crate::LockClient::acquire_all).
pub type LockSet = HeldLocks<Together>;

/// Several held locks that were acquired [in order](crate::AcquireAll::in_order), each with a fencing token of its own.
pub type LockChain = HeldLocks<InOrder>;

/// Several held locks, as one guard: a [`LockSet`] or a [`LockChain`].
///
/// The caller relies on all of them or on none: [`remaining`](HeldLocks::remaining) is the rest of the lease that ends
/// first, and when one lock is lost, the guard is over and releases the others. [`into_locks`](HeldLocks::into_locks)
/// makes single locks of it.
///
/// Dropping it releases nothing, as with a [`Lock`].
#[must_use = "locks that are dropped stay taken until their leases end: release them, or use `with_locks`"]
pub struct HeldLocks<Grants> {
    engine: Arc<Engine>,
    /// Never empty.
    locks: Vec<Lock>,
    /// Once one of them was lost and the others were given back: those that may still be held.
    left: Option<Vec<LockKey>>,
    grants: PhantomData<fn() -> Grants>,
}

impl LockSet {
    /// The fencing token of all of these locks. For each key it is larger than that of every earlier grant.
    ///
    /// Use it as [`Lock::fencing_token`], for whatever the locks guard.
    pub fn fencing_token(&self) -> u64 {
        self.locks.first().map_or(0, Lock::fencing_token)
    }
}

impl LockChain {
    /// The fencing token of the lock with this key, exactly as [`keys`](HeldLocks::keys) returns it: with the
    /// [prefix](crate::LockClient::prefixed) of the client, if it has one. `None` where this guard has no such lock.
    ///
    /// Each key has its own: a number that is larger than the tokens of other keys would make the resource refuse the
    /// next holder.
    pub fn fencing_token_of(&self, key: impl Into<LockKey>) -> Option<u64> {
        let key = key.into();
        self.locks.iter().find(|lock| *lock.key() == key).map(Lock::fencing_token)
    }
}

impl<Grants> HeldLocks<Grants> {
    fn new(engine: &Arc<Engine>, locks: Vec<Lock>) -> Self {
        Self { engine: engine.clone(), locks, left: None, grants: PhantomData }
    }

    fn budget(&self) -> Option<Budget> {
        self.locks.first().and_then(|lock| lock.budget.clone())
    }

    /// The keys of the locks: of a [`LockSet`] in the order in which they were given, of a [`LockChain`] in the order in
    /// which they were acquired.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &LockKey> {
        self.locks.iter().map(Lock::key)
    }

    /// The owner that holds the locks. It is the name of this caller.
    pub fn owner(&self) -> &str {
        self.locks.first().map_or("", Lock::owner)
    }

    /// Returns the rest of the lease that ends first, as [`Lock::remaining`] does. Zero when a lock is lost. Sends no
    /// request.
    pub fn remaining(&self) -> Duration {
        self.locks.iter().map(Lock::remaining).min().unwrap_or_default()
    }

    /// When the first of the leases ends by our wall clock, as the rows show it to other callers.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        self.locks.iter().filter_map(Lock::lease_ends_at).min()
    }

    /// Refuses a step that a lease cannot cover, as [`Lock::ensure_remaining`] does. Sends no request.
    ///
    /// # Errors
    /// Returns [`OutOfTime`](crate::ErrorKind::OutOfTime).
    pub fn ensure_remaining(&self, step: Duration) -> Result<(), Error> {
        let remaining = self.remaining();
        if remaining.is_zero() || remaining < step {
            return Err(Error::out_of_time(&self.named(), "lease", step, remaining));
        }
        Ok(())
    }

    /// Renews all leases, which shows whether the locks are still ours. Call it between steps.
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when one of the locks is lost: stop, and do not write. The error names
    /// the lost locks, and the others were released as far as DynamoDB responded. Returns
    /// [`Unknown`](crate::ErrorKind::Unknown) or [`Unavailable`](crate::ErrorKind::Unavailable): the locks are ours for
    /// [`remaining`](HeldLocks::remaining) as before, so retry the call. Returns `InvalidRecord`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one write for each lock (`dynamodb:UpdateItem`), up to eight at once, and more in the cases of
    /// [`Lock::checkpoint`]. The time of one checkpoint is that of all of them together. When a lock is lost, it sends one write
    /// for each of the others.
    ///
    /// # Cancel safety
    /// It is cancel safe. If the future is dropped, each lease may or may not have been renewed.
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        if self.is_lost() {
            return self.unless_lost(Ok(())).await;
        }
        let renewals = self.locks.iter_mut().map(|lock| Box::pin(lock.checkpoint_from_now()) as Task<'_, _>);
        let renewed: Vec<Result<(), Error>> = at_once(renewals).await;
        let failed = self.keys().cloned().zip(renewed).filter_map(|(key, renewed)| Some((key, renewed.err()?)));
        let failed = Error::of_some_locks(Operation::Renew, failed.collect());
        self.unless_lost(failed.map_or(Ok(()), Err)).await
    }

    /// Runs a future and renews the leases while it runs, as [`Lock::keep_alive`] does.
    ///
    /// # Errors
    /// Returns the errors of [`Lock::keep_alive`].
    ///
    /// # Requests and IAM actions
    /// It sends one write per lock and third of the lease: `dynamodb:UpdateItem`.
    ///
    /// # Cancel safety
    /// It is as cancel safe as the future itself. The locks stay usable.
    pub async fn keep_alive<F: Future>(&mut self, work: F) -> Result<F::Output, Error> {
        renew::keep_alive(self, work).await
    }

    /// Makes single locks of the set. From here on each is on its own. Sends no request.
    pub fn into_locks(self) -> Vec<Lock> {
        self.locks
    }

    fn named(&self) -> Vec<&LockKey> {
        self.keys().collect()
    }

    fn is_lost(&self) -> bool {
        self.locks.iter().any(Lock::is_lost)
    }

    /// Names the locks that are lost.
    fn lost_error(&self) -> Error {
        Error::lost_locks(&self.lost())
    }

    /// Gives the other locks back when one of them is lost, and reports that one.
    async fn unless_lost(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        if !self.is_lost() {
            return done;
        }
        let error = self.lost_error();
        Err(error.and_may_be_held(&self.give_back().await))
    }

    /// Releases those that are not known to be lost, and ends the guard. A failure is logged. Does it once, and again
    /// where the future was dropped. Returns those that may still be held.
    async fn give_back(&mut self) -> Vec<&LockKey> {
        self.give_back_within(self.budget()).await
    }

    async fn give_back_within(&mut self, budget: Option<Budget>) -> Vec<&LockKey> {
        if self.left.is_none() {
            self.left = Some(self.not_given_back(budget).await);
        }
        self.left.iter().flatten().collect()
    }

    async fn not_given_back(&self, budget: Option<Budget>) -> Vec<LockKey> {
        let rest: Vec<&Lock> = self.locks.iter().filter(|lock| !lock.is_lost()).collect();
        // From the first request on, none of them is ours.
        rest.iter().for_each(|lock| lock.abandon());
        let releases = rest.into_iter().map(|lock| {
            let Hold { holding, validity } = &lock.hold;
            let hold = Hold { holding: holding.clone(), validity: validity.clone() };
            let released = Release::of_hold(self.engine.clone(), hold, budget.clone()).outcome();
            let left = async {
                let error = released.await.err()?;
                not_released(lock.key(), Some(error));
                Some(lock.key().clone())
            };
            Box::pin(left) as Task<'_, _>
        });
        at_once(releases).await.into_iter().flatten().collect()
    }
}

impl<Grants> Renewable for HeldLocks<Grants> {
    type Validity = SharedValidities;

    fn validity(&self) -> SharedValidities {
        SharedValidities::new(self.engine.clock(), self.locks.iter().map(Lock::validity).collect())
    }

    fn until_next_renewal(&self) -> Duration {
        self.locks.iter().map(Renewable::until_next_renewal).min().unwrap_or_default()
    }

    fn renew(&mut self) -> impl Future<Output = Result<(), Error>> + Send {
        self.checkpoint()
    }

    fn ensure_remaining(&self) -> Result<(), Error> {
        self.ensure_remaining(Duration::ZERO)
    }

    fn can_be_extended(&self) -> bool {
        // They have one budget.
        self.locks.first().is_none_or(Renewable::can_be_extended)
    }
}

/// One of several things to be done at once.
type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Does all of them, a few at once. Returns the results in their order. The time of each has begun before this, so that those which
/// come last have no time of their own: they send one request, whose response is waited for briefly.
async fn at_once<'a, T: Send + 'a>(tasks: impl IntoIterator<Item = Task<'a, T>>) -> Vec<T> {
    // One that takes long must not delay more than it has to, so the next one does not wait for its turn.
    let tasks: Vec<_> =
        tasks.into_iter().enumerate().map(|(index, task)| task.map(move |done| (index, done))).collect();
    let mut done: Vec<_> = stream::iter(tasks).buffer_unordered(MAX_IN_FLIGHT).collect().await;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, done)| done).collect()
}

impl<Grants> fmt::Debug for HeldLocks<Grants> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLocks").field("locks", &self.locks).finish_non_exhaustive()
    }
}
