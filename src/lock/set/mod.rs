//! Several locks that one call acquired, and for how long the caller may rely on all of them.

pub(crate) mod acquire;
pub(crate) mod in_order;
pub(crate) mod release;
pub(crate) mod resume;

use super::commit::CommitOutcome;
use super::guard::Lock;
use super::held::{Guard, HeldLocks, Hold};
use super::watch::LockWatch;
use super::work::run;
use crate::engine::error::Error;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{DataChange, LockKey, from_epoch_millis};
use std::fmt;
use std::time::{Duration, SystemTime};

/// Several held locks, as one guard: acquired [together](crate::LockClient::acquire_all), with one fencing token, or
/// [in order](crate::AcquireAll::in_order), each with a token of its own.
///
/// The caller relies on all of them or on none: [`remaining`](LockSet::remaining) is the rest of the lease that ends
/// first, and when one lock is lost, the guard is over and releases the others. [`into_locks`](LockSet::into_locks)
/// makes single locks of it.
///
/// Up to eight requests of a call are under way at once. Where nothing responds, a renewal, a release or a resume ends a quarter of a
/// second later for each eight locks more.
///
/// Dropping it releases nothing, as with a [`Lock`].
#[must_use = "locks that are dropped stay taken until their leases end: release them, or use `run`"]
pub struct LockSet {
    held: HeldLocks,
}

impl Guard for LockSet {
    fn held(&self) -> &HeldLocks {
        &self.held
    }

    fn into_held(self) -> HeldLocks {
        self.held
    }
}

impl LockSet {
    /// How many locks one call acquires at most.
    pub const MAX: usize = 25;

    /// The keys of the locks: in the order in which they were given, or in which they were acquired one after the other.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &LockKey> {
        self.held.named().into_iter()
    }

    /// The one fencing token of all of these locks, as locks have that were acquired together. For each key it is larger than
    /// that of every earlier grant. Use it as [`Lock::fencing_token`], for whatever the locks guard. `None` where their tokens
    /// differ. Locks that were acquired in order may have equal ones by accident: use
    /// [`fencing_token_of`](LockSet::fencing_token_of) for them.
    pub fn fencing_token(&self) -> Option<u64> {
        let token = self.held.first.holding.token;
        self.held.others.iter().all(|hold| hold.holding.token == token).then_some(token)
    }

    /// The fencing token of the lock with this key, exactly as [`keys`](LockSet::keys) returns it: with the
    /// [prefix](crate::LockClient::prefixed) of the client, if it has one. `None` where this guard has no such lock.
    ///
    /// Locks that were acquired in order have a token each: a number that is larger than the tokens of other keys would make
    /// the resource refuse the next holder.
    pub fn fencing_token_of(&self, key: impl Into<LockKey>) -> Option<u64> {
        let key = key.into();
        self.held.holds().find(|hold| *hold.key() == key).map(|hold| hold.holding.token)
    }

    /// The owner that holds the locks. It is the name of this caller.
    pub fn owner(&self) -> &str {
        &self.held.first.holding.owner
    }

    /// Returns the rest of the lease that ends first, as [`Lock::remaining`] does. Zero when a lock is lost. Sends no
    /// request.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// When the first of the leases ends by our wall clock, as the rows show it to other callers.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        from_epoch_millis(self.held.holds().map(|hold| hold.holding.ends_at_ms).min()?)
    }

    /// Refuses a step that a lease cannot cover, as [`Lock::ensure_remaining`] does. Sends no request.
    ///
    /// # Errors
    /// Returns [`OutOfTime`](crate::ErrorKind::OutOfTime).
    pub fn ensure_remaining(&self, step: Duration) -> Result<(), Error> {
        self.held.ensure_remaining(step)
    }

    /// Renews all leases, which shows whether the locks are still ours. Call it between steps.
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when one of the locks is lost: stop, and do not write. The error names
    /// the lost locks, and the others were released as far as DynamoDB responded. Returns
    /// [`Unknown`](crate::ErrorKind::Unknown) or [`Unavailable`](crate::ErrorKind::Unavailable): the locks are ours for
    /// [`remaining`](LockSet::remaining) as before, so retry the call. Returns `InvalidRecord`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one write for each lock (`dynamodb:UpdateItem`), up to eight at once, and more in the cases of
    /// [`Lock::checkpoint`]. The time of one checkpoint is that of all of them together. When a lock is lost, it sends one write
    /// for each of the others.
    ///
    /// # Cancel safety
    /// It is cancel safe. If the future is dropped, each lease may or may not have been renewed.
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        self.held.checkpoint().await
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
        self.held.keep_alive(work).await
    }

    /// Returns one [`ConditionCheck`](aws_sdk_dynamodb::types::ConditionCheck) for each lock, for a transaction of your
    /// own. See [`Lock::condition_check`].
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when the guard has already found that a lock is lost.
    ///
    /// # IAM actions
    /// Your transaction needs `dynamodb:ConditionCheckItem` on the lock table, and the actions of its other items.
    pub fn condition_checks(&self) -> Result<Vec<TransactWriteItem>, Error> {
        self.held.condition_checks()
    }

    /// Applies your writes and renews all locks in one transaction. Everything is applied while all locks are ours, or
    /// nothing.
    ///
    /// # Errors
    /// Returns the errors of [`Lock::commit`]. `Lost` names the lost locks: nothing was applied, and the other locks were
    /// released as far as DynamoDB responded. `InvalidRequest`: your writes and the locks are more than 100 together.
    ///
    /// # Requests and IAM actions
    /// It sends one `TransactWriteItems`, which DynamoDB bills as two writes per item, of your writes and of the locks.
    /// The rest is as with [`Lock::commit`].
    ///
    /// # Limits and cancel safety
    /// They are those of [`Lock::commit`].
    pub async fn commit(&mut self, writes: impl IntoIterator<Item = TransactWriteItem>) -> Result<(), Error> {
        self.held.commit(&writes.into_iter().collect::<Vec<_>>(), DataChange::Keep).await
    }

    /// Applies your writes and releases all locks in one transaction. Everything is applied while all locks are ours, or
    /// nothing. This call ends the guard.
    ///
    /// # Errors
    /// Returns the errors of [`commit`](LockSet::commit). After any error, it tries to release the locks:
    /// [`Error::may_be_held`] has those that it could not release. After [`Unknown`](crate::ErrorKind::Unknown) the locks do
    /// not show whether the writes were applied, so read what they would have written.
    ///
    /// # Requests and IAM actions
    /// It sends the requests of [`commit`](LockSet::commit), and after an error one write for each lock
    /// (`dynamodb:UpdateItem`).
    ///
    /// # Cancel safety
    /// If the future is dropped, everything may have been applied, or nothing. The leases free the locks.
    pub async fn commit_and_release(self, writes: impl IntoIterator<Item = TransactWriteItem>) -> Result<(), Error> {
        self.held.commit_and_release(&writes.into_iter().collect::<Vec<_>>(), DataChange::Keep).await
    }

    /// Finds out whether the last [`commit`](LockSet::commit) was applied, if its response was lost, as
    /// [`Lock::resolve_commit`] does. One of the rows is enough to show it. Of a set that came as saved locks with a commit of unknown
    /// outcome, the rows of all of these have to show the same, or it is `Indeterminate`: each may have had a commit of its own.
    ///
    /// # Errors
    /// They are those of [`Lock::resolve_commit`].
    ///
    /// # Requests and IAM actions
    /// It sends one write for each lock (`dynamodb:UpdateItem`), or none after a checkpoint.
    ///
    /// # Cancel safety
    /// It is cancel safe: call it again.
    pub async fn resolve_commit(&mut self) -> Result<CommitOutcome, Error> {
        self.held.resolve_commit().await
    }

    /// Returns a handle that tells other code how long all of these locks are ours, as [`Lock::watch`] does. Sends no request.
    pub fn watch(&self) -> LockWatch {
        self.held.watch()
    }

    /// Runs the work and releases the locks, as [`Lock::run`] does. Errors and cancel safety are the same.
    ///
    /// # Requests and IAM actions
    /// Those of a [release](LockSet::release).
    pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut LockSet) -> Result<T, E>,
        E: From<Error>,
    {
        run(self, true, work).await
    }

    /// Makes single locks of the set. From here on each is on its own. Sends no request.
    pub fn into_locks(self) -> Vec<Lock> {
        let (engine, budget) = (self.held.engine.clone(), self.held.budget.clone());
        let lock = |hold: Hold| HeldLocks::one(engine.clone(), budget.clone(), hold).into();
        self.held.into_holds().map(lock).collect()
    }
}

impl fmt::Debug for LockSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens: Vec<_> = self.held.holds().map(|hold| (hold.key(), hold.holding.token)).collect();
        f.debug_struct("LockSet")
            .field("fencing_tokens", &tokens)
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
