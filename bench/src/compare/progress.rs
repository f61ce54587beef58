//! How far a run is, and how long it still takes: nobody should have to guess for half an hour.

use std::time::{Duration, Instant};

/// Counts what was planned against what is done, both as the time that they are expected to take.
pub(crate) struct Progress {
    began: Instant,
    planned: Duration,
    done: Duration,
}

impl Progress {
    pub(crate) fn of(planned: Duration) -> Self {
        println!("about {} of measuring", minutes(planned));
        Self { began: Instant::now(), planned, done: Duration::ZERO }
    }

    /// Something is done that was expected to take so long.
    pub(crate) fn did(&mut self, expected: Duration, what: &str) {
        self.done += expected;
        let left = left(self.planned, self.done, self.began.elapsed());
        println!("[{}, about {} left] {what}", minutes(self.began.elapsed()), minutes(left));
    }
}

/// What is left takes as much longer than expected as what is done did.
fn left(planned: Duration, done: Duration, took: Duration) -> Duration {
    if done.is_zero() {
        return planned;
    }
    planned.saturating_sub(done).mul_f64(took.as_secs_f64() / done.as_secs_f64())
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_as_slow_as_what_is_done() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(left(minutes(20), minutes(0), minutes(1)), minutes(20));
        assert_eq!(left(minutes(20), minutes(5), minutes(10)), minutes(30));
        assert_eq!(left(minutes(20), minutes(25), minutes(25)), minutes(0));
    }
}
