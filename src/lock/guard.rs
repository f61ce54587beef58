//! The guard: a held lock, and for how long the caller may rely on it. Each operation on it has a file of its own.

use super::validity::SharedValidity;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use crate::protocol::{Holding, LockKey, SavedLock, from_epoch_millis};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

/// A held lock.
///
/// As long as the clocks stay within their bounds, no other client is granted the lock until
/// [`remaining`](Lock::remaining) is zero. Call [`checkpoint`](Lock::checkpoint) between two steps of the work, because
/// nothing renews the lock in the background. What is written while the lock is held should carry its
/// [`fencing_token`](Lock::fencing_token), because a process may be paused between its last check and its effect.
///
/// Release the lock with [`release`](Lock::release). Dropping it **cannot** release it, since a frozen or killed
/// sandbox runs no code. A dropped lock stays held until its lease ends. For other callers it stays held
/// [`max_clock_skew`](crate::LockClientBuilder::max_clock_skew) longer. A warning in the log shows until when.
/// [`LockClient::with_lock`](crate::LockClient::with_lock) releases the lock on success and on error alike.
#[must_use = "a lock that is dropped stays taken until its lease ends: release it, or use `with_lock`"]
pub struct Lock {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Hold,
    pub(crate) budget: Option<Budget>,
    data: Option<Vec<u8>>,
    /// Shared with the code that polls work under this lock, once there is such work.
    validity: Option<SharedValidity>,
}

/// The part of the guard that it passes on to its release. Logs a warning when it is dropped before that.
pub(crate) struct Hold {
    pub(crate) holding: Box<Holding>,
    pub(crate) state: AtomicU8,
}

/// The guard relies on the lock until the lease ends.
pub(crate) const HELD: u8 = 0;
/// The guard found that the lease had ended. The lock is not ours again until a renewal succeeds.
const EXPIRED: u8 = 1;
/// Another grant has the lock, or it was released.
pub(crate) const LOST: u8 = 2;
/// The lock was released or saved. The guard is at its end, whatever the response to a release is.
pub(crate) const OVER: u8 = 3;

impl Lock {
    pub(crate) fn granted(
        engine: Arc<Engine>,
        holding: Box<Holding>,
        budget: Option<Budget>,
        data: Option<Vec<u8>>,
    ) -> Self {
        Self { engine, hold: Hold { holding, state: AtomicU8::new(HELD) }, budget, data, validity: None }
    }

    /// The key of the lock.
    pub fn key(&self) -> &LockKey {
        &self.hold.holding.key
    }

    /// The owner that holds the lock. It is the name of this caller.
    pub fn owner(&self) -> &str {
        &self.hold.holding.owner
    }

    /// The fencing token. It is larger than that of every earlier grant of this key.
    ///
    /// Store it with what you write, and refuse writes with a smaller one. On DynamoDB the condition is
    /// `attribute_not_exists(lastToken) OR lastToken <= :token`. Then an old holder that resumes late cannot overwrite
    /// what a newer holder wrote.
    ///
    /// It is not an idempotency key: a caller that does the same work again has a larger token.
    pub fn fencing_token(&self) -> u64 {
        self.hold.holding.token
    }

    /// The payload that the lock's row had when it was acquired. The last holder left it, or it was given with
    /// [`data`](crate::Acquire::data). `None` after [`resume`](crate::LockClient::resume).
    pub fn data(&self) -> Option<&[u8]> {
        self.data.as_deref()
    }

    /// Returns the rest of the lease, by the clock that shows less time left. Returns zero once this guard found that
    /// the lease had ended, until a checkpoint succeeds. Returns zero when the lock is lost. Sends no request.
    pub fn remaining(&self) -> Duration {
        if self.hold.state.load(Ordering::Relaxed) != HELD {
            return Duration::ZERO;
        }
        let remaining = match &self.validity {
            Some(validity) => validity.remaining(),
            None => self.hold.holding.validity.remaining(self.engine.clock().now()),
        };
        if remaining.is_zero() {
            self.hold.state.store(EXPIRED, Ordering::Relaxed);
        }
        remaining
    }

    /// When the lease ends by our wall clock, as the row shows it to other callers.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        from_epoch_millis(self.hold.holding.ends_at_ms)
    }

    /// Refuses a step that the lease cannot cover. Sends no request.
    ///
    /// ```no_run
    /// # async fn example(lock: &mut lambda_lock::Lock) -> Result<(), lambda_lock::Error> {
    /// use std::time::Duration;
    /// if lock.ensure_remaining(Duration::from_secs(3)).is_err() {
    ///     lock.checkpoint().await?;
    ///     lock.ensure_remaining(Duration::from_secs(3))?; // the budget is nearly over
    /// }
    /// // … a step of up to 3 s …
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`OutOfTime`](crate::ErrorKind::OutOfTime). Call checkpoint first, or leave the step to another caller.
    pub fn ensure_remaining(&self, step: Duration) -> Result<(), Error> {
        let remaining = self.remaining();
        if remaining.is_zero() || remaining < step {
            return Err(Error::out_of_time(self.key(), "lease", step, remaining));
        }
        Ok(())
    }

    /// Returns the validity for the code that polls the work, because the guard is lent to the work meanwhile.
    pub(crate) fn validity(&mut self) -> SharedValidity {
        let validity = (!self.remaining().is_zero()).then_some(self.hold.holding.validity);
        let clock = self.engine.clock();
        self.validity.get_or_insert_with(|| SharedValidity::new(clock.clone(), validity)).clone()
    }

    /// Sets the state that a response showed: the lock is held again, or it is lost.
    pub(crate) fn is_now(&self, state: u8) {
        self.hold.state.store(state, Ordering::Relaxed);
        if let Some(validity) = &self.validity {
            validity.is_now((state == HELD).then_some(self.hold.holding.validity));
        }
    }

    /// Tells the code that polls the work when a call has found that the lease is over, although the outcome of the
    /// call itself is another one.
    pub(crate) fn passes_on_its_end(&self) {
        let is_over = self.hold.holding.validity.remaining(self.engine.clock().now()).is_zero();
        if let Some(validity) = self.validity.as_ref().filter(|_| is_over) {
            validity.is_now(None);
        }
    }

    /// Saves the lock as data. The next function or state can [resume](crate::LockClient::resume),
    /// [reclaim](crate::LockClient::reclaim) or [release](crate::LockClient::release) it. The lease continues to run,
    /// so call checkpoint first if the next function starts late. [`to_saved`](Lock::to_saved) returns a copy and keeps
    /// the guard.
    ///
    /// ```no_run
    /// # use lambda_lock::{Budget, Error, Lock, LockClient, SavedLock};
    /// # fn hand_over(_: String) {}
    /// # fn handed_over() -> String { String::new() }
    /// # async fn example(locks: &LockClient, lock: Lock, budget: &Budget) -> Result<(), Box<dyn std::error::Error>> {
    /// let saved: SavedLock = lock.save();
    /// hand_over(serde_json::to_string(&saved)?);
    ///
    /// // The next function goes on with the same grant.
    /// let saved: SavedLock = serde_json::from_str(&handed_over())?;
    /// let lock = locks.resume(saved).within(budget).await?;
    /// # lock.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn save(self) -> SavedLock {
        self.hold.state.store(OVER, Ordering::Relaxed);
        SavedLock::of(&self.hold.holding)
    }

    /// Returns a copy of the lock as data, and this guard stays valid. Both hold the lock as one holder.
    pub fn to_saved(&self) -> SavedLock {
        SavedLock::of(&self.hold.holding)
    }

    /// Ends the guard without a release.
    pub(crate) fn abandon(&self) {
        self.hold.state.store(OVER, Ordering::Relaxed);
    }
}

impl Hold {
    /// Makes a `Hold` for the release of a lock that no guard holds.
    pub(crate) fn of_nobody(holding: Holding) -> Self {
        Self { holding: Box::new(holding), state: AtomicU8::new(OVER) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if matches!(*self.state.get_mut(), HELD | EXPIRED) {
            let Holding { key, token, ends_at_ms, .. } = &*self.holding;
            tracing::warn!(
                %key, token, taken_until_epoch_millis = ends_at_ms,
                "a lock was dropped without being released: it stays taken until its lease ends"
            );
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the payload, because it is the caller's data and does not belong in logs.
        f.debug_struct("Lock")
            .field("key", &self.hold.holding.key)
            .field("owner", &self.hold.holding.owner)
            .field("fencing_token", &self.hold.holding.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
