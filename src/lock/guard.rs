//! The guard: a held lock, and what is known of it. What can be done with it stands in a file for each operation.

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
/// Holding it means: until [`remaining`](Lock::remaining) is zero, no other client was granted the
/// lock, as long as clocks behave. Between two steps of the work call
/// [`checkpoint`](Lock::checkpoint); nothing renews behind your back. What is written while the
/// lock is held should carry its [`fencing_token`](Lock::fencing_token), because a process may be
/// paused between its last check and its effect.
///
/// Give it back with [`release`](Lock::release). Dropping it **cannot** release it, since a frozen
/// or killed sandbox runs nothing: a dropped lock stays taken until its lease ends (and, for others,
/// [`max_clock_skew`](crate::LockClientBuilder::max_clock_skew) longer), and a warning says until when.
/// [`LockClient::with_lock`](crate::LockClient::with_lock) releases on success and on error alike.
#[must_use = "a lock that is dropped stays taken until its lease ends: release it, or use `with_lock`"]
pub struct Lock {
    pub(crate) engine: Arc<Engine>,
    pub(crate) hold: Hold,
    pub(crate) budget: Option<Budget>,
    data: Option<Vec<u8>>,
    /// Shared with whoever polls work under this lock, once there is any.
    validity: Option<SharedValidity>,
}

/// The lock itself, which the guard passes on to its release. Warns when it is dropped before.
pub(crate) struct Hold {
    pub(crate) holding: Box<Holding>,
    pub(crate) state: AtomicU8,
}

/// Believed to be ours until the lease runs out.
pub(crate) const HELD: u8 = 0;
/// The lease was seen to have run out: not ours again until a renewal succeeds.
const EXPIRED: u8 = 1;
/// Another grant has it, or it was released.
pub(crate) const LOST: u8 = 2;
/// Released or handed over: the guard is over, whatever the answer.
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

    /// Which lock.
    pub fn key(&self) -> &LockKey {
        &self.hold.holding.key
    }

    /// Who holds it: us, by this name.
    pub fn owner(&self) -> &str {
        &self.hold.holding.owner
    }

    /// The fencing token: larger than that of every earlier grant of this key.
    ///
    /// Store it with what you write, and refuse writes with a smaller one: on DynamoDB
    /// `attribute_not_exists(lastToken) OR lastToken <= :token`. Then an old holder that wakes up
    /// late cannot overwrite what a newer holder wrote.
    ///
    /// It is no idempotency key: whoever does the same work again has a larger one.
    pub fn fencing_token(&self) -> u64 {
        self.hold.holding.token
    }

    /// The payload that the lock's row had when it was acquired: what the last holder left, or what
    /// was given with [`data`](crate::Acquire::data). `None` after [`resume`](crate::LockClient::resume).
    pub fn data(&self) -> Option<&[u8]> {
        self.data.as_deref()
    }

    /// What is left of the lease, by whichever clock is more pessimistic; zero once it was seen to
    /// have run out (until a checkpoint succeeds) or the lock is lost. Sends nothing.
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

    /// When the lease ends by our wall clock, as written on the row for others to see.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        from_epoch_millis(self.hold.holding.ends_at_ms)
    }

    /// Refuses a step that the lease cannot cover. Sends nothing.
    ///
    /// ```no_run
    /// # async fn example(lock: &mut lambda_lock::Lock) -> Result<(), lambda_lock::Error> {
    /// use std::time::Duration;
    /// if lock.ensure_remaining(Duration::from_secs(3)).is_err() {
    ///     lock.checkpoint().await?;
    /// }
    /// // … a step of up to 3 s …
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OutOfTime`](crate::ErrorKind::OutOfTime): checkpoint first, or leave the step to somebody else.
    pub fn ensure_remaining(&self, step: Duration) -> Result<(), Error> {
        let remaining = self.remaining();
        if remaining.is_zero() || remaining < step {
            return Err(Error::out_of_time(self.key(), "lease", step, remaining));
        }
        Ok(())
    }

    /// For whoever polls work while the guard is lent to it.
    pub(crate) fn validity(&mut self) -> SharedValidity {
        let validity = (!self.remaining().is_zero()).then_some(self.hold.holding.validity);
        let clock = self.engine.clock();
        self.validity.get_or_insert_with(|| SharedValidity::new(clock.clone(), validity)).clone()
    }

    /// What an answer says of the lock: held anew, or lost.
    pub(crate) fn is_now(&self, state: u8) {
        self.hold.state.store(state, Ordering::Relaxed);
        if let Some(validity) = &self.validity {
            validity.is_now((state == HELD).then_some(self.hold.holding.validity));
        }
    }

    /// Saves the lock as data, to be [resumed](crate::LockClient::resume), [reclaimed](crate::LockClient::reclaim)
    /// or [released](crate::LockClient::release) by the next function or state. The lease keeps running:
    /// checkpoint first if the next one comes late. [`to_saved`](Lock::to_saved) returns a copy and keeps the guard.
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

    /// A copy of the lock as data, while this guard goes on. Both hold it as one holder.
    pub fn to_saved(&self) -> SavedLock {
        SavedLock::of(&self.hold.holding)
    }

    /// Ends the guard without a release.
    pub(crate) fn abandon(&self) {
        self.hold.state.store(OVER, Ordering::Relaxed);
    }
}

impl Hold {
    /// For a release of what no guard holds.
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
        // Not the payload: it is the caller's and does not belong into logs.
        f.debug_struct("Lock")
            .field("key", &self.hold.holding.key)
            .field("owner", &self.hold.holding.owner)
            .field("fencing_token", &self.hold.holding.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
