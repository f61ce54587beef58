//! The guard of one held lock, as the caller has it.

use super::held::{Guard, HeldLocks, Hold};
use super::watch::LockWatch;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use lambda_lock_protocol::{Holding, LockKey, SavedLock, from_epoch_millis};
use std::fmt;
use std::sync::Arc;
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
    pub(crate) held: HeldLocks,
    pub(super) place: Option<Place>,
}

/// Which place of a semaphore a lock is.
pub(super) struct Place {
    pub(super) number: usize,
    pub(super) semaphore: LockKey,
}

impl Place {
    pub(super) fn given_back(&self, engine: &Engine) {
        engine.given_back.push(&self.semaphore, self.number);
    }
}

impl From<HeldLocks> for Lock {
    fn from(held: HeldLocks) -> Self {
        Self { held, place: None }
    }
}

impl Guard for Lock {
    fn held(&self) -> &HeldLocks {
        &self.held
    }

    /// Ends the guard. If it is a place of a semaphore, the next acquire of this client tries this place first.
    fn into_held(self) -> HeldLocks {
        self.place.iter().for_each(|place| place.given_back(&self.held.engine));
        self.held
    }
}

impl Lock {
    pub(crate) fn granted(
        engine: Arc<Engine>,
        holding: Holding,
        budget: Option<Budget>,
        data: Option<Vec<u8>>,
    ) -> Self {
        let hold = Hold::granted(&engine.clock, holding, data);
        HeldLocks::one(engine, budget, hold).into()
    }

    fn hold(&self) -> &Hold {
        &self.held.first
    }

    fn holding(&self) -> &Holding {
        &self.hold().holding
    }

    /// The key of the lock.
    pub fn key(&self) -> &LockKey {
        &self.holding().key
    }

    /// The owner that holds the lock. It is the name of this caller.
    pub fn owner(&self) -> &str {
        &self.holding().owner
    }

    /// The fencing token. It is larger than that of every earlier grant of this key.
    ///
    /// Store it with what you write, and refuse writes with a smaller one. On DynamoDB the condition is
    /// `attribute_not_exists(lastToken) OR lastToken <= :token`. Then an old holder that resumes late cannot overwrite
    /// what a newer holder wrote.
    ///
    /// It is not an idempotency key: a caller that does the same work again has a larger token.
    pub fn fencing_token(&self) -> u64 {
        self.holding().token
    }

    /// The number of the place, from 0, if this is a place of a [semaphore](crate::LockClient::semaphore). It can serve as the
    /// number of a worker or of a connection. `None` of any other lock, and after
    /// [`resume`](crate::LockClient::resume) and [`reclaim`](crate::LockClient::reclaim): its [key](Lock::key) ends with the number too.
    ///
    /// A resource that refuses late writes keeps one fencing token **for each place**: the tokens of different places have
    /// nothing to do with each other, and one number for all would refuse living holders.
    pub fn place(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.number)
    }

    /// The payload that the lock's row had when it was acquired. The last holder left it, or it was given with
    /// [`data`](crate::Acquire::data). `None` after [`resume`](crate::LockClient::resume), and of a lock that was acquired together with
    /// others: a transaction returns no rows.
    pub fn data(&self) -> Option<&[u8]> {
        self.hold().data.as_deref()
    }

    /// Returns the rest of the lease, by the clock that shows less time left. Returns zero once this guard found that
    /// the lease had ended, until a checkpoint succeeds. Returns zero when the lock is lost. Sends no request.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Returns a handle that tells other code how long this lock is ours, and that wakes it before the lease ends. Code
    /// inside [`keep_alive`](Lock::keep_alive) can use it, where the guard itself is lent. Sends no request.
    pub fn watch(&self) -> LockWatch {
        self.held.watch()
    }

    /// When the lease ends by our wall clock, as the row shows it to other callers.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        from_epoch_millis(self.holding().ends_at_ms)
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
        self.held.ensure_remaining(step)
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
        self.held.abandon();
        self.to_saved()
    }

    /// Returns a copy of the lock as data, and this guard stays valid. Both hold the lock as one holder.
    pub fn to_saved(&self) -> SavedLock {
        SavedLock::of(self.holding())
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the payload, because it is the caller's data and does not belong in logs.
        f.debug_struct("Lock")
            .field("key", self.key())
            .field("place", &self.place())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
