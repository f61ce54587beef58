//! Commit: applies the caller's writes and the lock's own write in one transaction.

use super::awaited::awaited;
use super::guard::Lock;
use super::held::{HeldLocks, Hold};
use crate::engine::Engine;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use crate::engine::operation::{Ended, operation_span};
use crate::engine::port::EnginePort;
use crate::engine::transaction;
use aws_sdk_dynamodb::types::TransactWriteItem;
#[cfg(feature = "once")]
use lambda_lock_protocol::StoredOutcome;
use lambda_lock_protocol::{
    self as protocol, Action, DataChange, Ending, FailedCommit, Failure, Holding, Invalid, Locks, Operation,
    PendingCommit, Request,
};
use std::fmt;

/// The outcome of a commit whose response was lost, see [`Lock::resolve_commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitOutcome {
    /// All of its writes were applied.
    Applied,
    /// None of its writes was applied, and none will be applied.
    NotApplied,
    /// The row no longer shows the outcome, and never will. A copy of the lock wrote the row in between, or the
    /// response to another request was lost. Or the rows of saved locks show different outcomes. Check what the commit would have
    /// written.
    Indeterminate,
}

/// Returns the fence for the caller's own transaction. The transaction is applied only while this grant is current.
pub(crate) fn fence(engine: &Engine, holding: &Holding) -> Result<TransactWriteItem, Error> {
    let action = Action::Fence { grant: holding.newest.grant, token: holding.token };
    let request = Request::alone(holding.key.clone(), action);
    transaction::lock_item(&engine.table, &engine.settings.schema, &request).map_err(|error| {
        Invalid::new(format!("the condition check cannot be built from the given parts: {error}")).into()
    })
}

/// A commit before it is awaited, which keeps the lock or releases it. See [`Lock::commit`] and [`Lock::commit_and_release`]
/// for errors, requests and cancel safety.
#[must_use = "a commit does nothing until it is awaited"]
pub struct Commit<'a> {
    guard: CommitGuard<'a>,
    writes: Vec<TransactWriteItem>,
    data: DataChange,
}

/// The lock of a commit.
enum CommitGuard<'a> {
    Kept(&'a mut Lock),
    Released(Lock),
}

impl<'a> Commit<'a> {
    fn new(guard: CommitGuard<'a>, writes: impl IntoIterator<Item = TransactWriteItem>) -> Self {
        Self { guard, writes: writes.into_iter().collect(), data: DataChange::Keep }
    }

    /// Replaces the payload in the lock's row in the same transaction, for example by the progress that the writes
    /// make, or by what the next holder needs. Or removes it: [`DataChange::Remove`]. Default: the row keeps its payload.
    pub fn data(mut self, data: impl Into<DataChange>) -> Self {
        self.data = data.into();
        self
    }
}

impl HeldLocks {
    /// Applies the writes and renews all locks in one transaction.
    pub(super) async fn commit(&mut self, writes: &[TransactWriteItem], data: DataChange) -> Result<(), Error> {
        if self.is_lost() {
            return self.unless_lost(Ok(())).await;
        }
        self.check_commit(writes, &data)?;
        // No renewal shortens a lease, so each lock keeps its own.
        let lease = self.holds().map(|hold| hold.holding.lease.duration()).min().unwrap_or_default();
        let lease = LeasePolicy::UpTo(lease, self.budget.clone());
        let committed = self.transact(writes, lease, Operation::Commit, Ending::Renewed { data }).await;
        for hold in self.holds() {
            match committed {
                Ok(()) => hold.set_valid(),
                Err(_) if hold.is_lost() => {}
                Err(_) => hold.passes_on_its_end(&self.engine.clock),
            }
        }
        self.unless_lost(committed).await
    }

    /// Applies the writes and releases all locks in one transaction, and ends the guard.
    pub(super) async fn commit_and_release(
        mut self,
        writes: &[TransactWriteItem],
        data: DataChange,
    ) -> Result<(), Error> {
        let committed = match self.check_commit(writes, &data) {
            Ok(()) => self.release_with(writes, data).await,
            Err(error) => Err(error),
        };
        self.end_guard(committed).await
    }

    async fn release_with(&mut self, writes: &[TransactWriteItem], data: DataChange) -> Result<(), Error> {
        // From the first request on, the locks may be free.
        self.abandon();
        self.transact(writes, LeasePolicy::None, Operation::CommitAndRelease, Ending::Released { data }).await
    }

    /// Sends a transaction of the writes and the locks. Notes which of the locks it has found lost.
    async fn transact(
        &mut self,
        writes: &[TransactWriteItem],
        lease: LeasePolicy,
        operation: Operation,
        ending: Ending,
    ) -> Result<(), Error> {
        let engine = self.engine.clone();
        let deadline = engine.deadline_of_transaction(lease, self.budget.as_ref());
        let key = self.first.key().clone();
        let span = operation_span!("lock_commit", %key, writes = writes.len());
        let mut holdings: Vec<&mut Holding> = self.holds_mut().map(|hold| &mut hold.holding).collect();
        let call =
            async |port: &mut EnginePort<'_>| protocol::commit(port, &engine.settings, &mut holdings, ending).await;
        let Ended { result, cause, report } = engine.run_with_writes(&deadline, &span, writes, call).await;
        let committed = result.map_err(|FailedCommit { failure, lost }| {
            for (_, hold) in self.holds().enumerate().filter(|(index, _)| lost.contains(index)) {
                hold.lose();
                tracing::warn!(key = %hold.key(), "the lock was lost; the transaction was not applied");
            }
            match failure {
                Failure::Lost => self.lost_error(),
                failure => Error::of_failure(failure, operation, &self.named(), cause),
            }
        });
        match &committed {
            Ok(()) => report.ended("commit", &key, "committed"),
            Err(error) => report.failed("commit", &key, error),
        }
        committed
    }

    /// Ends the guard after a transaction that ends its grants.
    async fn end_guard(mut self, ended: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = ended else {
            self.abandon();
            return Ok(());
        };
        // This is also done when the outcome is unknown: a released row refuses a transaction that may still arrive.
        Err(error.and_holds_only(&self.give_back().await))
    }

    fn check_commit(&self, writes: &[TransactWriteItem], data: &DataChange) -> Result<(), Error> {
        self.check_not_lost()?;
        if self.holds().any(|hold| hold.holding.pending.is_some()) {
            return Err(Invalid::new(format!(
                "the outcome of the last commit under {} is unknown: ask resolve_commit first, so that its writes are \
                 not applied twice",
                Locks(&self.named())
            ))
            .into());
        }
        let Holding { key, owner, .. } = &self.first.holding;
        self.engine.settings.check_write(key, owner, None, data)?;
        Ok(transaction::check(&self.engine, &self.named(), writes)?)
    }

    /// Finds out whether the last commit was applied, if its response was lost. Any one row shows it for all, also when another
    /// lock is lost. Of commits that came with saved locks, the rows of all have to show the same.
    pub(super) async fn resolve_commit(&mut self) -> Result<CommitOutcome, Error> {
        let is_sent = |hold: &Hold| matches!(hold.holding.pending, Some(PendingCommit::Sent(_)));
        let seen = if self.holds().any(is_sent) { self.checkpoint().await } else { Ok(()) };
        let pending: Vec<_> = self.holds().filter_map(|hold| hold.holding.pending).collect();
        let is_shown = |outcome: PendingCommit| {
            pending.contains(&outcome) && (!self.commits_were_saved || pending.iter().all(|shown| *shown == outcome))
        };
        let outcome = if is_shown(PendingCommit::Applied) {
            CommitOutcome::Applied
        } else if is_shown(PendingCommit::NotApplied) {
            CommitOutcome::NotApplied
        } else {
            seen?;
            if pending.is_empty() {
                return Err(Invalid::new(format!(
                    "no commit under {} is of unknown outcome: there is nothing to resolve",
                    Locks(&self.named())
                ))
                .into());
            }
            CommitOutcome::Indeterminate
        };
        self.holds_mut().for_each(|hold| hold.holding.pending = None);
        self.commits_were_saved = false;
        Ok(outcome)
    }

    /// Returns a fence of each lock, for a transaction of the caller's own.
    pub(super) fn condition_checks(&self) -> Result<Vec<TransactWriteItem>, Error> {
        self.check_not_lost()?;
        self.holds().map(|hold| fence(&self.engine, &hold.holding)).collect()
    }
}

/// Stores the outcome of idempotent work, with the caller's writes if there are any. This ends the grant of its lock.
#[cfg(feature = "once")]
pub(crate) async fn settle(
    mut lock: Lock,
    outcome: Result<StoredOutcome, Invalid>,
    writes: Vec<TransactWriteItem>,
) -> Result<(), Error> {
    let settled = match outcome {
        Ok(outcome) => settle_with(&mut lock.held, outcome, &writes).await,
        Err(invalid) => Err(invalid.into()),
    };
    lock.held.end_guard(settled).await
}

#[cfg(feature = "once")]
async fn settle_with(held: &mut HeldLocks, outcome: StoredOutcome, writes: &[TransactWriteItem]) -> Result<(), Error> {
    let Holding { key, owner, .. } = &held.first.holding;
    held.engine.settings.check_outcome(key, owner, &outcome)?;
    held.check_commit(writes, &DataChange::Remove)?;
    // From the first request on, the record may be settled.
    held.abandon();
    let alone = writes.is_empty();
    held.transact(writes, LeasePolicy::None, Operation::Settle, Ending::Settled { outcome, alone }).await
}

awaited!(Commit<'a> => Result<(), Error>, |commit| async move {
    match commit.guard {
        CommitGuard::Kept(lock) => lock.held.commit(&commit.writes, commit.data).await,
        CommitGuard::Released(Lock { held, place }) => {
            let engine = held.engine.clone();
            held.commit_and_release(&commit.writes, commit.data).await?;
            place.iter().for_each(|place| place.given_back(&engine));
            Ok(())
        }
    }
});

impl fmt::Debug for Commit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = match &self.guard {
            CommitGuard::Kept(lock) => &**lock,
            CommitGuard::Released(lock) => lock,
        };
        // Leaves out the writes, because they are the caller's data and do not belong in logs.
        f.debug_struct("Commit").field("lock", lock).field("writes", &self.writes.len()).finish_non_exhaustive()
    }
}

impl Lock {
    /// Returns a [`ConditionCheck`](aws_sdk_dynamodb::types::ConditionCheck) for a transaction of your own. Its writes
    /// are applied only while this grant is current, neither lost nor released. Sends no request.
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn example(
    /// #     lock: &lambda_lock::Lock, dynamodb: &aws_sdk_dynamodb::Client, record: TransactWriteItem,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// dynamodb.transact_write_items().transact_items(record).transact_items(lock.condition_check()?).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the lock was lost, the transaction is cancelled, and the reason at this item's position is
    /// `ConditionalCheckFailed`. The check orders grants, but not the writes of one grant: your own retry of a
    /// transaction needs your own client request token. [`commit`](Lock::commit) does all of that.
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when the guard has already found that the lock is lost.
    ///
    /// # IAM actions
    /// Your transaction needs `dynamodb:ConditionCheckItem` on the lock table, and the actions of its other items.
    pub fn condition_check(&self) -> Result<TransactWriteItem, Error> {
        self.held.check_not_lost()?;
        fence(&self.held.engine, &self.held.first.holding)
    }

    /// Applies your writes and renews the lock in one transaction. Everything is applied while the lock is ours, or
    /// nothing.
    ///
    /// A holder that was paused and has lost the lock writes nothing. A commit whose response was lost is sent again
    /// with the same client request token, so its writes are applied once. Await the commit. Afterwards the lease is
    /// the same as after a [`checkpoint`](Lock::checkpoint).
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn example(lock: &mut lambda_lock::Lock, record: TransactWriteItem) -> Result<(), lambda_lock::Error> {
    /// lock.commit([record]).await?; // applied, or an error that says why not
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`Lost`](crate::ErrorKind::Lost): stop. Nothing was applied.
    /// * [`Cancelled`](crate::ErrorKind::Cancelled): DynamoDB refused one of *your* writes. The error shows which one
    ///   and why. Nothing was applied. The guard relies on its lease as before.
    /// * [`Unknown`](crate::ErrorKind::Unknown): a request had no response, and nothing later shows whether it was applied. A
    ///   later refusal, such as a missing permission, does not change that. Do not commit the same writes
    ///   again: [`resolve_commit`](Lock::resolve_commit) finds out whether they were applied.
    /// * `Unavailable`: DynamoDB throttled the requests, or other transactions had the items, for the whole budget.
    ///   Nothing was applied.
    /// * `InvalidRequest`: there are more than 99 writes or more than 4 MB, one of them writes to the lock's own row,
    ///   or DynamoDB itself finds them invalid.
    /// * It can also return `InvalidRecord`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one `TransactWriteItems`, which DynamoDB bills as two writes per item. It needs `dynamodb:UpdateItem`
    /// on the lock table, and the actions of your writes on their tables. It sends one more after a response was lost,
    /// after a conflict with another transaction, or when a copy of this lock renewed it in another process. Conflicts
    /// are retried within the budget, or within three request timeouts if there is no budget. While DynamoDB still
    /// works on the transaction, it is sent again after pauses of at least half a second, for up to eight seconds if there
    /// is no budget. It sends a read in the same cases as [`checkpoint`](Lock::checkpoint).
    ///
    /// # Limits
    /// A network may deliver a request a second time, long after the first copy was cancelled because of your own
    /// writes, or because of a conflict for the whole budget. The second copy can still be applied until the lock is
    /// next renewed or released. (A request that got no response is not reported as cancelled before a renewal has ruled
    /// that out.)
    ///
    /// # Cancel safety
    /// If the future is dropped, everything may have been applied, or nothing. [`resolve_commit`](Lock::resolve_commit)
    /// finds out which.
    pub fn commit(&mut self, writes: impl IntoIterator<Item = TransactWriteItem>) -> Commit<'_> {
        Commit::new(CommitGuard::Kept(self), writes)
    }

    /// Applies your writes and releases the lock in one transaction. Everything is applied while the lock is ours, or
    /// nothing. This call ends the guard.
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn example(lock: lambda_lock::Lock, record: TransactWriteItem) -> Result<(), lambda_lock::Error> {
    /// lock.commit_and_release([record]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`commit`](Lock::commit). After any error, it tries to release the lock with a plain
    /// release, unless the lock is lost already: [`Error::may_be_held`] has it where that failed. After
    /// [`Unknown`](crate::ErrorKind::Unknown) the lock does not show whether the writes were applied, so read what they would
    /// have written.
    ///
    /// # Requests and IAM actions
    /// It sends the requests of [`commit`](Lock::commit), and after an error one write (`dynamodb:UpdateItem`).
    ///
    /// # Cancel safety
    /// If the future is dropped, everything may have been applied, or nothing. The lease frees the lock.
    pub fn commit_and_release(self, writes: impl IntoIterator<Item = TransactWriteItem>) -> Commit<'static> {
        Commit::new(CommitGuard::Released(self), writes)
    }

    /// Finds out whether the last [`commit`](Lock::commit) was applied, if its response was lost.
    ///
    /// It renews the lock. The version that the renewal replaces shows whether the commit was applied. A transaction
    /// that has not arrived yet is refused from then on. If a checkpoint succeeded meanwhile, it has found out already. What a
    /// renewal has shown counts also where it failed after that, or found the lock lost: the guard says so with its next call.
    ///
    /// # Errors
    /// Returns [`Unknown`](crate::ErrorKind::Unknown) or `Unavailable`: there was no usable response again, so retry
    /// the call. Returns `Lost`: check what the commit would have written. Returns `InvalidRequest`: there is no commit
    /// whose outcome is unknown. Otherwise returns the errors of [`checkpoint`](Lock::checkpoint).
    ///
    /// # Requests and IAM actions
    /// It sends one write (`dynamodb:UpdateItem`), or none after a checkpoint.
    ///
    /// # Cancel safety
    /// It is cancel safe: call it again.
    pub async fn resolve_commit(&mut self) -> Result<CommitOutcome, Error> {
        self.held.resolve_commit().await
    }
}
