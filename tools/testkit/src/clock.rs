//! The two clocks of a process, on top of tokio's paused time.

use lambda_lock::Instants;
use lambda_lock::{Clock, Sleep};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The server's wall clock at the start of a test, in epoch seconds.
pub const EPOCH_SECONDS: u64 = 1_800_000_000;

/// The clocks of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<State>>);

#[derive(Clone, Debug)]
struct State {
    origin: Instant,
    /// By how much the wall clock is wrong, in milliseconds.
    wall_offset: i64,
    /// How long the monotonic clock stood still.
    frozen: Duration,
    frozen_since: Option<Instant>,
    random: fastrand::Rng,
}

impl ManualClock {
    /// Creates clocks that agree with the server's. Their origin is the start of the test.
    pub(crate) fn new(origin: Instant, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            origin,
            wall_offset: 0,
            frozen: Duration::ZERO,
            frozen_since: None,
            random: fastrand::Rng::with_seed(seed),
        })))
    }

    /// Sets the wall clock forward (or back) by this many milliseconds.
    pub fn jump_wall(&self, millis: i64) {
        self.0.lock().unwrap().wall_offset += millis;
    }

    /// Lets time pass that the monotonic clock does not count, as in a frozen sandbox.
    pub async fn freeze(&self, duration: Duration) {
        self.0.lock().unwrap().frozen_since = Some(Instant::now());
        tokio::time::sleep(duration).await;
        let mut state = self.0.lock().unwrap();
        state.frozen_since = None;
        state.frozen += duration;
    }

    /// Clocks of their own in the same state, random numbers included: what two processes have of one snapshot.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    /// Seeds the generator anew, as the kernel does with its own at a restore.
    pub fn reseed(&self) {
        self.0.lock().unwrap().random = fastrand::Rng::new();
    }

    /// Returns this process's wall clock in epoch milliseconds.
    pub fn wall_millis(&self) -> u64 {
        self.now().wall.as_millis() as u64
    }

    /// Returns the clock for [`lambda_lock::LockClientBuilder::clock`] and
    /// [`lambda_lock::Budget::lasting_on`].
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instants {
        let state = self.0.lock().unwrap();
        let elapsed = state.origin.elapsed();
        let frozen = state.frozen + state.frozen_since.map_or(Duration::ZERO, |since| since.elapsed());
        let wall = UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS) + elapsed;
        let offset = Duration::from_millis(state.wall_offset.unsigned_abs());
        let wall: SystemTime = if state.wall_offset < 0 { wall - offset } else { wall + offset };
        Instants::new(elapsed.saturating_sub(frozen), wall)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }

    fn random(&self) -> [u8; 16] {
        self.0.lock().unwrap().random.u128(..).to_le_bytes()
    }
}
