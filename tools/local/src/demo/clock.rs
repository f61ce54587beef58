//! A wall clock that is behind, as that of a restored sandbox may be.

use aws_smithy_async::time::TimeSource;
use lambda_lock::{Clock, Instants, Sleep};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// This machine's clocks, with a wall clock that is this much behind.
pub(crate) fn behind(behind: Duration) -> Arc<dyn Clock> {
    Arc::new(WallClockBehind { origin: Instant::now(), behind })
}

/// The wall clock alone, with which the SDK signs requests.
pub(crate) fn wall(behind: Duration) -> impl TimeSource {
    WallClockBehind { origin: Instant::now(), behind }
}

impl TimeSource for WallClockBehind {
    fn now(&self) -> SystemTime {
        SystemTime::now() - self.behind
    }
}

#[derive(Debug)]
struct WallClockBehind {
    origin: Instant,
    behind: Duration,
}

impl Clock for WallClockBehind {
    fn now(&self) -> Instants {
        Instants::new(self.origin.elapsed(), TimeSource::now(self))
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }

    fn random(&self) -> [u8; 16] {
        *uuid::Uuid::new_v4().as_bytes()
    }
}
