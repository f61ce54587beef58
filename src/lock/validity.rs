//! Work that ends with its lease: it is polled only as long as its lock is ours.
//!
//! The guard itself is lent to the work, or to a renewal, and cannot be asked meanwhile. So what it believes is
//! shared with whoever polls the work, who looks at it before each poll, by both clocks. A frozen process that
//! is thawed therefore does not go on where it stood, beside the next holder.

use crate::engine::clock::SharedClock;
use crate::protocol::{Instants, LeaseValidity};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// For how long a lock is believed to be ours, shared between its guard and whoever polls the work under it.
#[derive(Clone, Debug)]
pub(crate) struct SharedValidity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    /// `None`: it was seen to be over, and stays so until a renewal succeeds.
    validity: Mutex<Option<LeaseValidity>>,
}

impl SharedValidity {
    pub(crate) fn new(clock: SharedClock, validity: Option<LeaseValidity>) -> Self {
        Self(Arc::new(Inner { clock, validity: Mutex::new(validity) }))
    }

    /// After a renewal, or when the lock was lost.
    pub(crate) fn is_now(&self, validity: Option<LeaseValidity>) {
        *self.validity() = validity;
    }

    /// What is left, by the more pessimistic clock.
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

    /// Polls the work if the lock is ours; `None` if it is not.
    pub(crate) fn poll<F: Future>(&self, work: Pin<&mut F>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.remaining().is_zero() {
            return Poll::Ready(None);
        }
        work.poll(context).map(Some)
    }

    /// Drives the work as long as the lock is ours; `None` once it is not, and then the work is dropped where it
    /// stands.
    pub(crate) async fn run<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let mut alarm = self.0.clock.sleep(self.remaining());
        poll_fn(|context| {
            let polled = self.poll(work.as_mut(), context);
            if polled.is_ready() {
                return polled;
            }
            // The work may have renewed the lease meanwhile: then the end is later than when the alarm was set.
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
