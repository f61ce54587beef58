//! The one place that reads clocks, sleeps and draws random numbers.

use aws_smithy_async::rt::sleep::{AsyncSleep, SharedAsyncSleep};
use lambda_lock_protocol::Instants;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A future that completes when some time has passed.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time and random numbers for a lock client.
///
/// The default is the system's clock. Tests and simulations set their own with
/// [`LockClientBuilder::clock`](crate::LockClientBuilder::clock).
pub trait Clock: fmt::Debug + Send + Sync {
    /// Reads both clocks.
    fn now(&self) -> Instants;

    /// Returns a future that completes after this duration.
    fn sleep(&self, duration: Duration) -> Sleep;

    /// Returns random bytes that no other process gets. They tell grants apart. They must come from the operating
    /// system's generator, because a cloned sandbox would share any other generator.
    fn random(&self) -> [u8; 16];
}

/// The system's clocks, without a way to sleep. That is enough for a [`Budget`](crate::Budget).
pub(crate) fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new(None))
}

/// The system's clocks, and the async runtime's way to sleep.
pub(crate) fn system_with(sleep: SharedAsyncSleep) -> Arc<dyn Clock> {
    Arc::new(SystemClock::new(Some(sleep)))
}

/// The operating system's clocks and random number generator.
#[derive(Debug)]
struct SystemClock {
    origin: Instant,
    sleep: Option<SharedAsyncSleep>,
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads clocks")]
impl SystemClock {
    fn new(sleep: Option<SharedAsyncSleep>) -> Self {
        Self { origin: Instant::now(), sleep }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads clocks and draws random numbers")]
impl Clock for SystemClock {
    fn now(&self) -> Instants {
        Instants::new(self.origin.elapsed(), SystemTime::now())
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        match &self.sleep {
            Some(sleep) => Box::pin(sleep.sleep(duration)),
            // Only a budget has a clock that cannot sleep, and a budget does not sleep.
            None => Box::pin(std::future::pending()),
        }
    }

    fn random(&self) -> [u8; 16] {
        *uuid::Uuid::new_v4().as_bytes()
    }
}
