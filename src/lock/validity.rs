//! Stops work when its lease ends. The work is polled only as long as its lock is ours.
//!
//! The guard itself is lent to the work or to a renewal, so other code cannot read it meanwhile. For this reason, the
//! guard shares how long it relies on the lock with the code that polls the work. That code checks it against both
//! clocks before each poll. A process that resumes after a freeze therefore does not continue its work beside the next
//! holder.

use crate::engine::clock::SharedClock;
use crate::protocol::{Instants, LeaseValidity};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long the guard relies on the lock. The guard and the code that polls the work share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedValidity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    /// `None` means that the lease was seen to have ended, until a renewal succeeds.
    validity: Mutex<Option<LeaseValidity>>,
}

impl SharedValidity {
    pub(crate) fn new(clock: SharedClock, validity: Option<LeaseValidity>) -> Self {
        Self(Arc::new(Inner { clock, validity: Mutex::new(validity) }))
    }

    /// Sets the new validity, after a renewal or when the lock was lost.
    pub(crate) fn is_now(&self, validity: Option<LeaseValidity>) {
        *self.validity() = validity;
    }

    /// Returns the time that is left, by the clock that shows less.
    pub(crate) fn remaining(&self) -> Duration {
        self.remaining_at(self.0.clock.now())
    }

    fn remaining_at(&self, now: Instants) -> Duration {
        let mut validity = self.validity();
        let remaining = validity.map_or(Duration::ZERO, |validity| validity.remaining(now));
        if remaining.is_zero() {
            *validity = None;
        }
        remaining
    }

    fn validity(&self) -> std::sync::MutexGuard<'_, Option<LeaseValidity>> {
        self.0.validity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the work if the lock is ours. Returns `None` if it is not.
    pub(crate) fn poll<F: Future>(&self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.remaining().is_zero() {
            return Poll::Ready(None);
        }
        work.poll(context).map(Some)
    }

    /// Runs the work as long as the lock is ours. Once the lock is not ours, it drops the work at that point and
    /// returns `None`.
    pub(crate) async fn run<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut alarm = self.0.clock.sleep(self.remaining());
        poll_fn(|context| {
            let polled = self.poll(work.as_mut(), context);
            if polled.is_ready() {
                return polled;
            }
            // The work may have renewed the lease meanwhile. Then the lease ends later than the alarm was set for.
            while alarm.as_mut().poll(context).is_ready() {
                let remaining = self.remaining();
                if remaining.is_zero() {
                    return Poll::Ready(None);
                }
                alarm = self.0.clock.sleep(remaining);
            }
            Poll::Pending
        })
        .await
    }
}
