//! Commit of several locks: applies the caller's writes and those of all locks in one transaction.

use super::HeldLocks;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use crate::engine::port::EnginePort;
use crate::engine::report::Report;
use crate::engine::transaction;
use crate::lock::commit::{CommitOutcome, fence, span};
use crate::lock::guard::Lock;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{
    self as protocol, DataChange, FailedCommit, Failure, Holding, Invalid, LockKey, Operation, PendingCommit,
};

impl<Grants> HeldLocks<Grants> {
    /// Returns one [`ConditionCheck`](aws_sdk_dynamodb::types::ConditionCheck) for each lock, for a transaction of your
    /// own. See [`Lock::condition_check`].
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when the guard has already found that a lock is lost.
    ///
    /// # IAM actions
    /// Your transaction needs `dynamodb:ConditionCheckItem` on the lock table, and the actions of its other items.
    pub fn condition_checks(&self) -> Result<Vec<TransactWriteItem>, Error> {
        if self.is_lost() {
            return Err(self.lost_error());
        }
        self.locks.iter().map(|lock| fence(&lock.engine, &lock.hold.holding)).collect()
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
        let writes: Vec<_> = writes.into_iter().collect();
        self.check_commit(&writes)?;
        // No renewal shortens a lease, so each lock keeps its own.
        let lease = self.locks.iter().map(|lock| lock.hold.holding.lease.duration()).min().unwrap_or_default();
        let (engine, budget) = (self.engine.clone(), self.budget());
        let deadline = engine.deadline_of_transaction(LeasePolicy::up_to(lease, budget.as_ref()), budget.as_ref());
        let span = span(self.locks[0].key(), &writes);
        let mut port = EnginePort::with_writes(&engine, &deadline, &span, &writes);
        let committed = protocol::commit(&mut port, engine.settings(), &mut self.holdings(), DataChange::Keep).await;
        let (cause, report) = port.end();
        match &committed {
            Ok(()) => self.locks.iter().for_each(Lock::set_valid),
            Err(failed) => self.lose(&failed.lost),
        }
        let committed = committed.map_err(|FailedCommit { failure, .. }| {
            Error::of_failed_locks(failure, Operation::Commit, &self.named(), cause)
        });
        report_commit(report, self.locks[0].key(), &committed);
        self.unless_lost(committed).await
    }

    /// Applies your writes and releases all locks in one transaction. Everything is applied while all locks are ours, or
    /// nothing. This call ends the guard.
    ///
    /// # Errors
    /// Returns the errors of [`commit`](HeldLocks::commit). After any error, it tries to release the locks:
    /// [`Error::may_be_held`] has those that it could not release. After [`Unknown`](crate::ErrorKind::Unknown) the locks do
    /// not show whether the writes were applied, so read what they would have written.
    ///
    /// # Requests and IAM actions
    /// It sends the requests of [`commit`](HeldLocks::commit), and after an error one write for each lock
    /// (`dynamodb:UpdateItem`).
    ///
    /// # Cancel safety
    /// If the future is dropped, everything may have been applied, or nothing. The leases free the locks.
    pub async fn commit_and_release(
        mut self,
        writes: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<(), Error> {
        let writes: Vec<_> = writes.into_iter().collect();
        let committed = match self.check_commit(&writes) {
            Ok(()) => self.release_with(&writes).await,
            Err(error) => Err(error),
        };
        match committed {
            Ok(()) => {
                self.locks.iter().for_each(Lock::abandon);
                Ok(())
            }
            // This is also done when the outcome is unknown: a released row refuses a transaction that may still arrive.
            Err(error) => Err(error.and_holds_only(&self.give_back().await)),
        }
    }

    async fn release_with(&mut self, writes: &[TransactWriteItem]) -> Result<(), Error> {
        // From the first request on, the locks may be free.
        self.locks.iter().for_each(Lock::abandon);
        let (engine, budget) = (self.engine.clone(), self.budget());
        let deadline = engine.deadline_of_transaction(LeasePolicy::None, budget.as_ref());
        let span = span(self.locks[0].key(), writes);
        let mut port = EnginePort::with_writes(&engine, &deadline, &span, writes);
        let committed =
            protocol::commit_and_release(&mut port, engine.settings(), &mut self.holdings(), DataChange::Keep).await;
        let (cause, report) = port.end();
        let committed = committed.map_err(|FailedCommit { failure, lost }| {
            let is_lost = failure == Failure::Lost;
            self.lose(&lost);
            if is_lost {
                self.lost_error()
            } else {
                Error::of_failed_locks(failure, Operation::CommitAndRelease, &self.named(), cause)
            }
        });
        report_commit(report, self.locks[0].key(), &committed);
        committed
    }

    fn check_commit(&self, writes: &[TransactWriteItem]) -> Result<(), Error> {
        if self.is_lost() {
            return Err(self.lost_error());
        }
        if self.locks.iter().any(|lock| lock.hold.holding.pending.is_some()) {
            return Err(Invalid::new(
                "the outcome of the last commit under these locks is unknown: ask resolve_commit first, so that its writes \
                 are not applied twice",
            )
            .into());
        }
        Ok(transaction::check(&self.engine, &self.named(), writes)?)
    }

    /// Finds out whether the last [`commit`](HeldLocks::commit) was applied, if its response was lost, as
    /// [`Lock::resolve_commit`] does.
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
        let is_sent = |lock: &Lock| matches!(lock.hold.holding.pending, Some(PendingCommit::Sent(_)));
        let seen = if self.locks.iter().any(is_sent) { self.checkpoint().await } else { Ok(()) };
        let pending: Vec<_> = self.locks.iter().filter_map(|lock| lock.hold.holding.pending).collect();
        // Any one row shows the outcome for all, also when another lock is lost.
        let outcome = if pending.contains(&PendingCommit::Applied) {
            CommitOutcome::Applied
        } else if pending.contains(&PendingCommit::NotApplied) {
            CommitOutcome::NotApplied
        } else {
            seen?;
            if pending.is_empty() {
                return Err(Invalid::new(
                    "no commit under these locks is of unknown outcome: there is nothing to resolve",
                )
                .into());
            }
            CommitOutcome::Indeterminate
        };
        self.locks.iter_mut().for_each(|lock| lock.hold.holding.pending = None);
        Ok(outcome)
    }

    fn holdings(&mut self) -> Vec<&mut Holding> {
        self.locks.iter_mut().map(|lock| &mut lock.hold.holding).collect()
    }

    /// Notes what a failed transaction has found.
    fn lose(&self, lost: &[usize]) {
        for (index, lock) in self.locks.iter().enumerate() {
            if lost.contains(&index) {
                lock.lose();
            } else {
                lock.passes_on_its_end();
            }
        }
    }
}

fn report_commit(report: Report, first: &LockKey, committed: &Result<(), Error>) {
    match committed {
        Ok(()) => report.ended("commit", first, "committed"),
        Err(error) => report.failed("commit", first, error),
    }
}
