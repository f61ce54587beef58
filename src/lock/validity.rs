//! How long the guard relies on its lock, shared with the code that polls the work and with each watch.
//!
//! The guard itself is lent to the work or to a renewal, so other code cannot read it meanwhile. What the guard knows
//! is therefore shared. The code that polls the work checks it against both clocks before each poll. A process that
//! resumes after a freeze therefore does not continue its work beside the next holder.

use crate::engine::clock::Clock;
use lambda_lock_protocol::{Instants, LeaseValidity};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// What the guard knows about its lock.
#[derive(Clone, Debug)]
pub(crate) struct SharedValidity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    standing: Mutex<Standing>,
    changed: Notify,
}

/// Whether the guard relies on the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It relies on the lock until this validity ends.
    Valid(LeaseValidity),
    /// The lease was seen to have ended. The lock is not ours again until a renewal succeeds.
    Expired,
    /// Another grant has the lock, or it was released.
    Lost,
    /// The lock was released or saved. The guard is at its end, whatever the response to a release is.
    Over,
}

impl SharedValidity {
    pub(crate) fn new(clock: Arc<dyn Clock>, standing: Standing) -> Self {
        Self(Arc::new(Inner { clock, standing: Mutex::new(standing), changed: Notify::new() }))
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(crate) fn standing(&self) -> Standing {
        *self.lock()
    }

    /// Sets what a response showed, or what the caller did with the guard.
    pub(crate) fn set(&self, standing: Standing) {
        *self.lock() = standing;
        self.0.changed.notify_waiters();
    }

    pub(super) fn remaining(&self) -> Duration {
        self.remaining_at(self.0.clock.now())
    }

    pub(super) fn remaining_at(&self, now: Instants) -> Duration {
        let remaining = {
            let mut standing = self.lock();
            let Standing::Valid(validity) = *standing else { return Duration::ZERO };
            let remaining = validity.remaining(now);
            if remaining.is_zero() {
                *standing = Standing::Expired;
            }
            remaining
        };
        if remaining.is_zero() {
            // A timer runs on one clock, and the other one may have ended the lease. Whoever is woken may ask at once, so the
            // mutex is free by now.
            self.0.changed.notify_waiters();
        }
        remaining
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.0.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when no more than this time is left.
    pub(super) async fn left_at_most(&self, rest: Duration) {
        loop {
            // Made before the first look, so that it misses no change after that.
            let mut changed = pin!(self.0.changed.notified());
            let mut alarm = self.0.clock.sleep(self.remaining().saturating_sub(rest));
            let is_reached = poll_fn(|context| {
                // Also looked at before the alarm: after a freeze the alarm may be late.
                if self.remaining() <= rest {
                    return Poll::Ready(true);
                }
                // The lease ends later than the alarm was set for, or the lock is not ours any more.
                if changed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(false);
                }
                alarm.as_mut().poll(context).map(|()| false)
            });
            if is_reached.await {
                return;
            }
        }
    }
}
