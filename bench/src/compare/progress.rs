//! The progress of a run and its remaining time, because a run can take half an hour.

use std::time::{Duration, Instant};

/// Counts the planned and the finished work. Both are measured as expected time.
pub(crate) struct Progress {
    began: Instant,
    left: Duration,
    done: Duration,
}

impl Progress {
    pub(crate) fn of(planned: Duration) -> Self {
        println!("a whole run takes about {}", minutes(planned));
        Self { began: Instant::now(), left: planned, done: Duration::ZERO }
    }

    /// An interrupted run has already done this.
    pub(crate) fn had(&mut self, expected: Duration) {
        self.left = self.left.saturating_sub(expected);
    }

    /// A part with this expected time is done.
    pub(crate) fn did(&mut self, expected: Duration, what: &str) {
        self.left = self.left.saturating_sub(expected);
        self.done += expected;
        let took = self.began.elapsed();
        println!("[{}, about {} left] {what}", minutes(took), minutes(as_slow(self.left, self.done, took)));
    }
}

/// The remaining time: the rest takes longer than expected by the same factor as the part done.
fn as_slow(left: Duration, done: Duration, took: Duration) -> Duration {
    if done.is_zero() { left } else { left.mul_f64(took.as_secs_f64() / done.as_secs_f64()) }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_rest_of_a_run_is_expected_to_be_as_slow_as_the_part_done() {
        assert_eq!(as_slow(15 * MINUTE, 5 * MINUTE, 10 * MINUTE), 30 * MINUTE);
        assert_eq!(as_slow(20 * MINUTE, Duration::ZERO, MINUTE), 20 * MINUTE);
    }

    #[test]
    fn work_done_before_an_interruption_does_not_count_for_the_speed_of_a_run() {
        let mut progress = Progress::of(20 * MINUTE);
        progress.had(12 * MINUTE);
        assert_eq!((progress.left, progress.done), (8 * MINUTE, Duration::ZERO));
    }
}
