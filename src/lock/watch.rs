//! A watch: what the guard knows about all of its locks, for the code that polls the work, and for code of callers that does not
//! have the guard.

use super::validity::{SharedValidity, Standing};
use crate::engine::clock::Clock;
use futures_util::future::select_all;
use std::future::poll_fn;
use std::iter;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Tells other code how long a held lock is ours, or all locks of a set, made by [`Lock::watch`](crate::Lock::watch) or
/// [`LockSet::watch`](crate::LockSet::watch).
///
/// The guard is lent to the work or to [`keep_alive`](crate::Lock::keep_alive), so other code cannot ask it. A watch
/// shares what the guard knows: renewals through the guard, the end of the lease by both clocks, a loss, and the end of
/// the guard. It is cheap to clone, and can be sent to other tasks. It sends no request and renews nothing.
///
/// ```no_run
/// # use lambda_lock::{Budget, Error, LockClient};
/// # use std::time::Duration;
/// # async fn next_step() -> bool { false }
/// # async fn save_progress() {}
/// # async fn example(locks: &LockClient, budget: &Budget) -> Result<(), Error> {
/// locks
///     .with_lock("report", budget, async |lock| {
///         let watch = lock.watch();
///         let work = async {
///             while next_step().await {
///                 // The budget ends soon, so keep_alive cannot renew any more.
///                 if watch.remaining() < Duration::from_secs(5) {
///                     return save_progress().await;
///                 }
///             }
///         };
///         lock.keep_alive(work).await
///     })
///     .await
/// # }
/// ```
///
/// A lock that is dropped without a release stays ours until its lease ends, and the watch says so. When the lock is
/// released or saved, the watch says at once that nothing is left.
#[derive(Clone, Debug)]
pub struct LockWatch {
    first: SharedValidity,
    others: Vec<SharedValidity>,
}

impl LockWatch {
    pub(super) fn new(first: SharedValidity, others: Vec<SharedValidity>) -> Self {
        Self { first, others }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        self.first.clock()
    }

    fn all(&self) -> impl Iterator<Item = &SharedValidity> {
        iter::once(&self.first).chain(&self.others)
    }

    /// Returns what [`Lock::remaining`](crate::Lock::remaining) would return. Zero after the lock was released or
    /// saved.
    pub fn remaining(&self) -> Duration {
        // The lease that ends first, by the clock that shows less.
        let now = self.clock().now();
        let others = self.others.iter().map(|validity| validity.remaining_at(now));
        others.fold(self.first.remaining_at(now), Duration::min)
    }

    /// Whether a request of the guard found that another grant has the lock, or one of them, or that it was released elsewhere. A lease
    /// that has only ended is not lost: the next renewal shows whether it is.
    pub fn is_lost(&self) -> bool {
        self.all().any(|validity| validity.standing() == Standing::Lost)
    }

    /// Completes when no more than this time of the lease is left, and also when the lock is not ours any more. A
    /// renewal before that delays it.
    ///
    /// It completes at once if the time is longer than what the lease has left, so choose a time well below the lease.
    /// Within [`keep_alive`](crate::Lock::keep_alive), choose a time below a third of the lease. It then completes only
    /// if renewals fail, or end with the budget.
    ///
    /// ```no_run
    /// # use lambda_lock::{Error, Lock};
    /// # use std::time::Duration;
    /// # async fn step(_: u64) {}
    /// # async fn example(lock: &mut Lock) -> Result<(), Error> {
    /// let watch = lock.watch();
    /// let work = step(lock.fencing_token());
    /// tokio::pin!(work);
    /// loop {
    ///     tokio::select! {
    ///         // The watch is asked before the work, also after a freeze.
    ///         biased;
    ///         () = watch.nearing_end(Duration::from_secs(3)) => {
    ///             lock.checkpoint().await?;
    ///             // Refuses to continue when the budget allows no longer lease.
    ///             lock.ensure_remaining(Duration::from_secs(4))?;
    ///         }
    ///         () = &mut work => return Ok(()),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// It is cancel safe: call it again.
    pub async fn nearing_end(&self, before: Duration) {
        select_all(self.all().map(|validity| Box::pin(validity.left_at_most(before)))).await;
    }

    /// Completes when the lock is not ours any more: its lease has ended by one of the clocks, it is lost, released or
    /// saved. A renewal before that delays it. Code that runs beside the guard stops here. A wall clock that is set
    /// forward is noticed when the guard or a watch next looks, or when the monotonic clock ends the lease.
    ///
    /// # Cancel safety
    /// It is cancel safe: call it again.
    pub async fn ended(&self) {
        self.nearing_end(Duration::ZERO).await;
    }

    /// Polls the work if the locks are ours. Returns `None` if they are not.
    pub(super) fn poll<F: Future>(&self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.remaining().is_zero() {
            return Poll::Ready(None);
        }
        work.poll(context).map(Some)
    }

    /// Runs the work as long as the locks are ours. Once they are not ours, it drops the work at that point and returns
    /// `None`.
    pub(crate) async fn run<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut alarm = self.clock().sleep(self.remaining());
        poll_fn(|context| {
            let polled = self.poll(work.as_mut(), context);
            if polled.is_ready() {
                return polled;
            }
            // The work has learned that they are not ours, and waits for something else.
            if self.all().any(|validity| !matches!(validity.standing(), Standing::Valid(_))) {
                return Poll::Ready(None);
            }
            // The work may have renewed the lease meanwhile. Then the lease ends later than the alarm was set for.
            while alarm.as_mut().poll(context).is_ready() {
                let remaining = self.remaining();
                if remaining.is_zero() {
                    return Poll::Ready(None);
                }
                alarm = self.clock().sleep(remaining);
            }
            Poll::Pending
        })
        .await
    }
}
