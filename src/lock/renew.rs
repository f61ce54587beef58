//! Renew: move the end of the lease, by a checkpoint between steps or while a future runs.

use super::guard::{HELD, Hold, LOST, Lock};
use crate::engine::call::Call;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use crate::protocol::{self, DataChange, Failure, Lease, Operation};
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tracing::field::Empty;

impl Lock {
    /// Renews the lease, and so learns whether the lock is still ours. Call it between steps.
    ///
    /// The renewed lease is as long as the first one; under a budget it does not reach beyond the
    /// budget's end and grace. A lease that ran out can still be renewed while nobody else was
    /// granted the lock: the write itself proves it.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost): stop, and do not write. [`Unknown`](crate::ErrorKind::Unknown) and
    /// [`Unavailable`](crate::ErrorKind::Unavailable): the lock is ours for [`remaining`](Lock::remaining)
    /// as before; ask again. `InvalidRecord`, `Table`, `Denied`.
    ///
    /// # Requests and IAM actions
    /// One write (`dynamodb:UpdateItem`); a second one after a lost answer, or when a copy of this
    /// lock changed its lease elsewhere. One consistent read (`dynamodb:GetItem`) when DynamoDB refuses and has no
    /// row to show, as it does when the row was deleted.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped the lease may or may not have been renewed, and the
    /// guard believes that it was not.
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        self.renew().await
    }

    /// A [`checkpoint`](Lock::checkpoint) that changes something: a longer lease, or the payload.
    pub fn renew(&mut self) -> Renew<'_> {
        Renew { lock: self, lease: None, data: DataChange::Keep }
    }

    /// Runs a future and renews the lease while it runs, a third of the lease after the last
    /// renewal, in the same task: nothing is spawned. For one long step that cannot be cut by
    /// checkpoints.
    ///
    /// The renewals stop with the caller's own polling: a future that blocks its thread, or a frozen
    /// sandbox, renews nothing. Before each poll of the future the lease is looked at, by both clocks. Once it has
    /// ended, the future stands still until a renewal has told whether the lock is still ours, and goes on only
    /// if it is.
    ///
    /// # Errors
    /// `Lost` as soon as a renewal finds the lock lost, and whatever the last renewal said when the
    /// lease has ended. The future is then dropped where it stands. A renewal that fails before
    /// is tried again.
    ///
    /// # Requests and IAM actions
    /// One write per third of the lease: `dynamodb:UpdateItem`.
    ///
    /// # Cancel safety
    /// As that of the future itself; the lock stays usable.
    pub async fn keep_alive<F: Future>(&mut self, work: F) -> Result<F::Output, Error> {
        let validity = self.validity();
        let mut work = pin!(work);
        loop {
            let mut pause = self.engine.clock().sleep(self.until_next_renewal());
            let done = poll_fn(|context| match validity.poll(work.as_mut(), context) {
                // After a freeze the lease may have ended long before the pause: renew at once.
                Poll::Ready(done) => Poll::Ready(done),
                Poll::Pending => pause.as_mut().poll(context).map(|()| None),
            });
            if let Some(output) = done.await {
                return Ok(output);
            }
            let renewed = {
                let mut renewal = pin!(self.checkpoint());
                let first = poll_fn(|context| match validity.poll(work.as_mut(), context) {
                    Poll::Ready(Some(output)) => Poll::Ready(Ok(output)),
                    // The lease has ended: the work stands still until the renewal has told.
                    Poll::Ready(None) | Poll::Pending => renewal.as_mut().poll(context).map(Err),
                });
                first.await
            };
            match renewed {
                Ok(output) => return Ok(output),
                // Renewed, but not beyond the end of the budget: past that the lease covers nothing.
                Err(Ok(())) => self.ensure_remaining(Duration::ZERO)?,
                Err(Err(error)) if error.is_lost() || self.remaining().is_zero() => return Err(error),
                Err(Err(error)) => {
                    tracing::warn!(key = %self.key(), %error, "a renewal failed; trying again within the lease");
                }
            }
        }
    }

    fn until_next_renewal(&self) -> Duration {
        let lease = self.engine.clock_bounds().believed(self.hold.holding.lease.duration());
        let remaining = self.remaining();
        // Near its end a lease that can be prolonged is renewed more often; one that ends with the
        // budget is not.
        let latest = if self.hold.holding.validity.is_cut_short(lease) { remaining } else { remaining / 2 };
        (lease / 3).min(latest).max(Duration::from_millis(10))
    }

    async fn renewed(&mut self, lease: Option<Duration>, data: DataChange) -> Result<(), Error> {
        self.engine.settings().check_write(self.key(), &self.hold.holding.owner, None, &data)?;
        // The lease on the row may be longer, where a copy of this lock was renewed elsewhere.
        lease.map_or(Ok(()), Lease::check)?;
        let lease = lease.unwrap_or(self.hold.holding.lease.duration());
        self.renew_for(LeasePolicy::up_to(lease, self.budget.as_ref()), &data).await
    }

    /// One renewal, as checkpoint and resume need it.
    pub(crate) async fn renew_for(&mut self, lease: LeasePolicy, data: &DataChange) -> Result<(), Error> {
        if self.hold.state.load(Ordering::Relaxed) == LOST {
            return Err(Error::lost(self.key()));
        }
        let deadline = self.engine.deadline(lease, self.budget.as_ref());
        let Self { engine, hold: Hold { holding, .. }, .. } = self;
        let key = holding.key.clone();
        let span = tracing::info_span!(
            "lock_renew", %key, token = holding.token, attempts = Empty, waited_ms = Empty, outcome = Empty
        );
        let mut call = Call::new(engine, &deadline, &span);
        let renewed = protocol::renew(&mut call, engine.settings(), holding, data).await;
        let cause = call.end();
        match renewed {
            Ok(()) => {
                self.is_now(HELD);
                span.record("outcome", "renewed");
                Ok(())
            }
            Err(failure) => {
                if failure == Failure::Lost {
                    self.is_now(LOST);
                    tracing::warn!(%key, token = self.fencing_token(), "the lock was lost");
                }
                let error = Error::of_failure(failure, Operation::Renew, &key, cause);
                span.record("outcome", tracing::field::debug(error.kind()));
                Err(error)
            }
        }
    }
}

/// A renewal before it is awaited: `lock.renew().lease(…).await`. Errors, requests and cancel
/// safety are those of [`Lock::checkpoint`].
#[must_use = "a renewal does nothing until it is awaited"]
pub struct Renew<'a> {
    lock: &'a mut Lock,
    lease: Option<Duration>,
    data: DataChange,
}

impl Renew<'_> {
    /// Asks for a longer lease. A shorter one than the lock has is ignored: a renewal never shortens
    /// what others already count on.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Replaces the payload in the lock's row, for instance by the progress made so far.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = DataChange::Set(data.into());
        self
    }

    /// Removes the payload from the lock's row.
    pub fn remove_data(mut self) -> Self {
        self.data = DataChange::Remove;
        self
    }
}

impl<'a> IntoFuture for Renew<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.lock.renewed(self.lease, self.data))
    }
}

impl fmt::Debug for Renew<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renew").field("lock", &self.lock).field("lease", &self.lease).finish_non_exhaustive()
    }
}
