//! Renew: extends the lease, by a checkpoint between two steps or while a future runs.

use super::at_once::{Task, at_once};
use super::awaited::awaited;
use super::guard::Lock;
use super::held::{HeldLocks, Hold, LastRenewal};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::{Deadline, LeasePolicy};
use crate::engine::error::Error;
use crate::engine::operation::operation_span;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, DataChange, Failure, Holding, Lease, LockKey, Operation};
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

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
        self.held.checkpoint().await
    }

    /// A [`checkpoint`](Lock::checkpoint) that also changes something: it sets a longer lease, or the payload.
    pub fn renew(&mut self) -> Renew<'_> {
        Renew { lock: self, lease: None, data: DataChange::Keep }
    }

    /// Runs a future and renews the lease while it runs. Each renewal comes a third of the lease after the last one, in
    /// the same task, and nothing is spawned. It comes also where it cannot extend the lease, as where the lease covers the
    /// whole budget: it shows that the lock is still ours. Use it for one long step that checkpoints cannot divide. Within
    /// [`run`](Lock::run) and `with_lock` its renewals also delay the end at which the work is dropped.
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
        self.held.keep_alive(work).await
    }
}

/// How long after a renewal that failed the next one is sent. DynamoDB may respond again long before a third of the lease is over,
/// and who watches the lease may end the work by then.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

impl HeldLocks {
    /// Renews all leases, which shows whether the locks are still ours.
    pub(super) async fn checkpoint(&mut self) -> Result<(), Error> {
        if self.is_lost() {
            return self.unless_lost(Ok(())).await;
        }
        let renewed = if self.others.is_empty() {
            let deadline = self.first.deadline_of_renewal(&self.engine, self.budget.as_ref());
            self.first.renew(&self.engine, &deadline, &DataChange::Keep).await
        } else {
            self.renew_at_once().await
        };
        self.unless_lost(renewed).await
    }

    async fn renew_at_once(&mut self) -> Result<(), Error> {
        let (engine, budget) = (self.engine.clone(), self.budget.clone());
        let keys: Vec<LockKey> = self.keys().cloned().collect();
        let renewals = self.holds_mut().map(|hold| {
            // The time of each begins with this call, also if others are polled first.
            let deadline = hold.deadline_of_renewal(&engine, budget.as_ref());
            let engine = &engine;
            Box::pin(async move { hold.renew(engine, &deadline, &DataChange::Keep).await }) as Task<'_, _>
        });
        let renewed: Vec<Result<(), Error>> = at_once(renewals).await;
        let failed = keys.into_iter().zip(renewed).filter_map(|(key, renewed)| Some((key, renewed.err()?)));
        Error::of_some_locks(Operation::Renew, failed.collect()).map_or(Ok(()), Err)
    }

    /// When a renewal is due. One is sent also where it cannot extend the lease: it shows whether the lock is still ours.
    fn until_next_renewal(&self) -> Duration {
        self.holds().map(|hold| hold.until_next_renewal(&self.engine)).min().unwrap_or_default()
    }

    /// Runs the work and renews the leases while it runs.
    pub(super) async fn keep_alive<F: Future>(&mut self, work: F) -> Result<F::Output, Error> {
        let watch = self.watch();
        let mut work = pin!(work);
        // The last renewal left nothing of the lease.
        let mut was_late = false;
        loop {
            let mut pause = watch.clock().sleep(self.until_next_renewal());
            let done = poll_fn(|context| match watch.poll(work.as_mut(), context) {
                // After a freeze, the lease may have ended long before the pause does. Then it renews at once.
                Poll::Ready(done) => Poll::Ready(done),
                Poll::Pending => pause.as_mut().poll(context).map(|()| None),
            });
            if let Some(output) = done.await {
                return Ok(output);
            }
            let renewed = {
                let mut renewal = pin!(self.checkpoint());
                let first = poll_fn(|context| match watch.poll(work.as_mut(), context) {
                    Poll::Ready(Some(output)) => Poll::Ready(Ok(output)),
                    // The lease has ended. The work is not polled until the renewal has ended.
                    Poll::Ready(None) | Poll::Pending => renewal.as_mut().poll(context).map(Err),
                });
                first.await
            };
            // The lease ended while the renewal was on its way: the process was frozen, or there was no response. The lock may
            // still be ours, so one more renewal is sent, unless the budget is over.
            let is_late = watch.remaining().is_zero();
            let ends = is_late && (was_late || !can_be_extended(self.budget.as_ref()));
            was_late = is_late;
            match renewed {
                Ok(output) => return Ok(output),
                Err(Err(error)) if error.is_lost() || ends => return Err(error),
                Err(Err(error)) => tracing::warn!(%error, "a renewal failed; trying again"),
                // It was renewed, but not beyond the end of the budget. After that, the lease covers nothing.
                Err(Ok(())) if ends => self.ensure_remaining(Duration::ZERO)?,
                Err(Ok(())) => {}
            }
        }
    }
}

/// Whether a renewal can make a lease that has ended last again: the budget is not over.
pub(super) fn can_be_extended(budget: Option<&Budget>) -> bool {
    budget.and_then(Budget::to_cover) != Some(Duration::ZERO)
}

impl Hold {
    /// The time of a renewal that begins now, for the lease that the lock has.
    pub(super) fn deadline_of_renewal(&self, engine: &Engine, budget: Option<&Budget>) -> Deadline {
        engine.deadline(LeasePolicy::UpTo(self.holding.lease.duration(), budget.cloned()), budget)
    }

    /// For how long a holder relies on the whole lease.
    pub(super) fn believed_lease(&self, engine: &Engine) -> Duration {
        engine.clock_bounds().believed(self.holding.lease.duration())
    }

    pub(super) fn until_next_renewal(&self, engine: &Engine) -> Duration {
        let lease = self.believed_lease(engine);
        let remaining = self.validity.remaining();
        let now = engine.clock.now();
        let proven = self.holding.validity.age(now);
        let tried = self.last_renewal.as_ref().map_or(Duration::MAX, |last| now.longest_since(last.at));
        let has_failed = self.last_renewal.as_ref().is_some_and(|last| last.has_failed);
        let period = if has_failed { AFTER_FAILURE.min(lease / 3) } else { lease / 3 };
        // Near its end, a lease that can be extended is renewed more often. A lease that ends with the budget is not.
        let latest = if self.holding.validity.is_cut_short(lease) { remaining } else { remaining / 2 };
        period.saturating_sub(tried.min(proven)).min(latest).max(Duration::from_millis(10))
    }

    /// Sends one renewal, for checkpoint and resume.
    pub(super) async fn renew(&mut self, engine: &Engine, deadline: &Deadline, data: &DataChange) -> Result<(), Error> {
        if self.is_lost() {
            return Err(Error::lost(&[self.key()]));
        }
        let (key, token) = (self.key(), self.holding.token);
        let span = operation_span!("lock_renew", %key, token);
        self.last_renewal = Some(LastRenewal { at: engine.clock.now(), has_failed: false });
        let holding = &mut self.holding;
        let call = async |port: &mut EnginePort<'_>| protocol::renew(port, &engine.settings, holding, data).await;
        let renewed = engine.run(deadline, &span, call).await;
        match &renewed.result {
            Ok(()) => self.set_valid(),
            Err(Failure::Lost) => {
                self.lose();
                tracing::warn!(key = %self.key(), token, "the lock was lost");
            }
            Err(_) => {
                self.last_renewal = Some(LastRenewal { at: engine.clock.now(), has_failed: true });
                self.passes_on_its_end(&engine.clock);
            }
        }
        renewed.reported(("renew", Operation::Renew, self.key()), |()| "renewed")
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

    /// Replaces the payload in the lock's row, for example by the progress so far, or removes it: [`DataChange::Remove`]. Default: the
    /// row keeps its payload.
    pub fn data(mut self, data: impl Into<DataChange>) -> Self {
        self.data = data.into();
        self
    }
}

impl Renew<'_> {
    async fn renew(self) -> Result<(), Error> {
        let Self { lock, lease, data } = self;
        let HeldLocks { engine, budget, first, .. } = &mut lock.held;
        let Holding { key, owner, lease: held, .. } = &first.holding;
        engine.settings.check_write(key, owner, None, &data)?;
        // The lease in the row may be longer, if a copy of this lock was renewed in another process.
        lease.map_or(Ok(()), Lease::check)?;
        let lease = LeasePolicy::UpTo(lease.unwrap_or(held.duration()), budget.clone());
        let deadline = engine.deadline(lease, budget.as_ref());
        first.renew(engine, &deadline, &data).await
    }
}

awaited!(Renew<'a> => Result<(), Error>, |renew| renew.renew());

impl fmt::Debug for Renew<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renew").field("lock", &self.lock).field("lease", &self.lease).finish_non_exhaustive()
    }
}
