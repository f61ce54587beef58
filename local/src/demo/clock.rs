//! A wall clock that is behind, as that of a restored sandbox may be.

use lambda_lock::{Clock, Instants, SharedClock, Sleep};
use std::time::{Duration, Instant, SystemTime};

/// This machine's clocks, with a wall clock that is this much behind.
pub(crate) fn behind(behind: Duration) -> SharedClock {
    SharedClock::new(WallClockBehind { origin: Instant::now(), behind })
}

#[derive(Debug)]
struct WallClockBehind {
    origin: Instant,
    behind: Duration,
}

impl Clock for WallClockBehind {
    fn now(&self) -> Instants {
        Instants::new(self.origin.elapsed(), SystemTime::now() - self.behind)
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }

    fn random(&self) -> [u8; 16] {
        *uuid::Uuid::new_v4().as_bytes()
    }
}
