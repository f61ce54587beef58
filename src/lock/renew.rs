//! Renew: extends the lease, by a checkpoint between two steps or while a future runs.

use super::guard::{LastRenewal, Lock};
use super::validity::{SharedValidity, Validity};
use crate::engine::budget::Budget;
use crate::engine::deadline::{Deadline, LeasePolicy};
use crate::engine::error::Error;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, DataChange, Failure, Lease, Operation};
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tracing::field::Empty;

impl Lock {
    /// Renews the lease, which shows whether the lock is still ours. Call it between steps.
    ///
    /// The renewed lease is as long as the first one. With a budget, it does not extend beyond the budget's end and
    /// grace. A lease that ended can still be renewed while nobody else was granted the lock, because the condition of
    /// the write proves that.
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost): stop, and do not write. Returns [`Unknown`](crate::ErrorKind::Unknown)
    /// or [`Unavailable`](crate::ErrorKind::Unavailable): the lock is ours for [`remaining`](Lock::remaining) as
    /// before, so retry the call. Returns `InvalidRecord`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one write (`dynamodb:UpdateItem`). It sends a second write after a response was lost, or when a copy of
    /// this lock changed its lease in another process. It sends one consistent read (`dynamodb:GetItem`) when DynamoDB
    /// refuses the write and returns no row, as it does when the row was deleted.
    ///
    /// # Cancel safety
    /// It is cancel safe. If the future is dropped, the lease may or may not have been renewed, and the guard assumes
    /// that it was not.
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        self.renew().await
    }

    /// A [`checkpoint`](Lock::checkpoint) that also changes something: it sets a longer lease, or the payload.
    pub fn renew(&mut self) -> Renew<'_> {
        Renew { lock: self, lease: None, data: DataChange::Keep }
    }

    /// Runs a future and renews the lease while it runs. Each renewal comes a third of the lease after the last one, in
    /// the same task, and nothing is spawned. It comes also where it cannot extend the lease, as where the lease covers the
    /// whole budget: it shows that the lock is still ours. Use it for one long step that checkpoints cannot divide.
    ///
    /// The renewals stop when the caller no longer polls. A future that blocks its thread, or a frozen sandbox, renews
    /// nothing. Before each poll of the future, the lease is checked against both clocks. Once the lease has ended, the
    /// future is not polled until a renewal has shown whether the lock is still ours. It continues only if the lock is
    /// ours.
    ///
    /// # Errors
    /// Returns `Lost` as soon as a renewal finds that the lock is lost. Returns the error of the last renewal when the
    /// lease has ended. The future is then dropped at that point. A renewal that fails before the end of the lease is
    /// retried after a second. So is, once, one that ends after it, as when the process was frozen meanwhile.
    ///
    /// # Requests and IAM actions
    /// It sends one write per third of the lease: `dynamodb:UpdateItem`.
    ///
    /// # Cancel safety
    /// It is as cancel safe as the future itself. The lock stays usable.
    pub async fn keep_alive<F: Future>(&mut self, work: F) -> Result<F::Output, Error> {
        keep_alive(self, work).await
    }

    async fn renewed(&mut self, lease: Option<Duration>, data: DataChange) -> Result<(), Error> {
        self.engine.settings().check_write(self.key(), &self.hold.holding.owner, None, &data)?;
        // The lease in the row may be longer, if a copy of this lock was renewed in another process.
        lease.map_or(Ok(()), Lease::check)?;
        let lease = lease.unwrap_or(self.hold.holding.lease.duration());
        self.renew_for(LeasePolicy::up_to(lease, self.budget.as_ref()), &data).await
    }

    async fn renew_for(&mut self, lease: LeasePolicy, data: &DataChange) -> Result<(), Error> {
        let deadline = self.engine.deadline(lease, self.budget.as_ref());
        self.renew_by(&deadline, data).await
    }

    pub(super) fn deadline_of_checkpoint(&self) -> Deadline {
        let lease = LeasePolicy::up_to(self.hold.holding.lease.duration(), self.budget.as_ref());
        self.engine.deadline(lease, self.budget.as_ref())
    }

    /// A checkpoint whose time begins with this call, also if others are polled first.
    pub(super) fn checkpoint_from_now(&mut self) -> impl Future<Output = Result<(), Error>> + Send {
        let deadline = self.deadline_of_checkpoint();
        async move { self.renew_by(&deadline, &DataChange::Keep).await }
    }

    /// For how long a holder relies on the whole lease.
    pub(super) fn believed_lease(&self) -> Duration {
        self.engine.clock_bounds().believed(self.hold.holding.lease.duration())
    }

    /// Sends one renewal, for checkpoint and resume.
    pub(super) async fn renew_by(&mut self, deadline: &Deadline, data: &DataChange) -> Result<(), Error> {
        if self.is_lost() {
            return Err(Error::lost(self.key()));
        }
        let (key, token) = (self.key(), self.fencing_token());
        let span = tracing::info_span!("lock_renew", %key, token, attempts = Empty, waited_ms = Empty, outcome = Empty);
        self.last_renewal = Some(LastRenewal { at: self.engine.clock().now(), has_failed: false });
        let mut port = EnginePort::new(&self.engine, deadline, &span);
        let renewed = protocol::renew(&mut port, self.engine.settings(), &mut self.hold.holding, data).await;
        match &renewed {
            Ok(()) => self.set_valid(),
            Err(Failure::Lost) => {
                self.lose();
                tracing::warn!(key = %self.key(), token, "the lock was lost");
            }
            Err(_) => {
                self.last_renewal = Some(LastRenewal { at: self.engine.clock().now(), has_failed: true });
                self.passes_on_its_end();
            }
        }
        port.ended("renew", (Operation::Renew, self.key()), renewed, |()| "renewed")
    }
}

/// How long after a renewal that failed the next one is sent. DynamoDB may respond again long before a third of the lease is over,
/// and who watches the lease may end the work by then.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A guard that can be renewed while its work runs.
pub(super) trait Renewable {
    type Validity: Validity;

    fn validity(&self) -> Self::Validity;
    /// A renewal is sent also where it cannot extend the lease: it shows whether the lock is still ours.
    fn until_next_renewal(&self) -> Duration;
    fn renew(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
    /// Fails when nothing is left of the lease.
    fn ensure_remaining(&self) -> Result<(), Error>;
    /// Whether a renewal can make a lease that has ended last again: the budget is not over.
    fn can_be_extended(&self) -> bool;
}

impl Renewable for Lock {
    type Validity = SharedValidity;

    fn validity(&self) -> SharedValidity {
        self.validity()
    }

    fn until_next_renewal(&self) -> Duration {
        let lease = self.believed_lease();
        let remaining = self.remaining();
        let now = self.engine.clock().now();
        let proven = self.hold.holding.validity.age(now);
        let tried = self.last_renewal.as_ref().map_or(Duration::MAX, |last| now.longest_since(last.at));
        let has_failed = self.last_renewal.as_ref().is_some_and(|last| last.has_failed);
        let period = if has_failed { AFTER_FAILURE.min(lease / 3) } else { lease / 3 };
        // Near its end, a lease that can be extended is renewed more often. A lease that ends with the budget is not.
        let latest = if self.hold.holding.validity.is_cut_short(lease) { remaining } else { remaining / 2 };
        period.saturating_sub(tried.min(proven)).min(latest).max(Duration::from_millis(10))
    }

    fn renew(&mut self) -> impl Future<Output = Result<(), Error>> + Send {
        self.checkpoint()
    }

    fn ensure_remaining(&self) -> Result<(), Error> {
        self.ensure_remaining(Duration::ZERO)
    }

    fn can_be_extended(&self) -> bool {
        self.budget.as_ref().and_then(Budget::to_cover) != Some(Duration::ZERO)
    }
}

/// Runs the work and renews the guard while it runs.
pub(super) async fn keep_alive<G: Renewable, F: Future>(guard: &mut G, work: F) -> Result<F::Output, Error> {
    let validity = guard.validity();
    let mut work = pin!(work);
    // The last renewal left nothing of the lease.
    let mut was_late = false;
    loop {
        let mut pause = validity.clock().sleep(guard.until_next_renewal());
        let done = poll_fn(|context| match validity.poll(work.as_mut(), context) {
            // After a freeze, the lease may have ended long before the pause does. Then it renews at once.
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => pause.as_mut().poll(context).map(|()| None),
        });
        if let Some(output) = done.await {
            return Ok(output);
        }
        let renewed = {
            let mut renewal = pin!(guard.renew());
            let first = poll_fn(|context| match validity.poll(work.as_mut(), context) {
                Poll::Ready(Some(output)) => Poll::Ready(Ok(output)),
                // The lease has ended. The work is not polled until the renewal has ended.
                Poll::Ready(None) | Poll::Pending => renewal.as_mut().poll(context).map(Err),
            });
            first.await
        };
        // The lease ended while the renewal was on its way: the process was frozen, or there was no response. The lock may still be
        // ours, so one more renewal is sent, unless the budget is over.
        let is_late = validity.remaining().is_zero();
        let ends = is_late && (was_late || !guard.can_be_extended());
        was_late = is_late;
        match renewed {
            Ok(output) => return Ok(output),
            Err(Err(error)) if error.is_lost() || ends => return Err(error),
            Err(Err(error)) => tracing::warn!(%error, "a renewal failed; trying again"),
            // It was renewed, but not beyond the end of the budget. After that, the lease covers nothing.
            Err(Ok(())) if ends => guard.ensure_remaining()?,
            Err(Ok(())) => {}
        }
    }
}

/// A renewal before it is awaited: `lock.renew().lease(…).await`. Errors, requests and cancel safety are those of
/// [`Lock::checkpoint`].
#[must_use = "a renewal does nothing until it is awaited"]
pub struct Renew<'a> {
    lock: &'a mut Lock,
    lease: Option<Duration>,
    data: DataChange,
}

impl Renew<'_> {
    /// Sets a longer lease. A lease that is shorter than the lock's is ignored, because a renewal never shortens the
    /// lease that other callers already rely on.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Replaces the payload in the lock's row, for example by the progress so far.
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
