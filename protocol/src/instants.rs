//! Readings of two clocks, taken together, because each clock alone can be wrong in its own way.
//!
//! The monotonic clock may stand still while a Lambda sandbox is frozen. The wall clock may be set back. So a holder
//! uses the *larger* of the two spans, because it must not believe that its lease is younger than it is. A contender
//! uses the *smaller* one, because it must not count time that did not pass.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One reading of the monotonic clock and of the wall clock.
///
/// The monotonic part counts from an arbitrary origin. Only differences between readings of the same clock mean
/// anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instants {
    /// Time on the monotonic clock, since an arbitrary origin.
    pub monotonic: Duration,
    /// Time on the wall clock, since the Unix epoch.
    pub wall: Duration,
}

impl Instants {
    /// Makes a reading of both clocks. A wall clock before 1970 counts as 1970.
    pub fn new(monotonic: Duration, wall: SystemTime) -> Self {
        let wall = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { monotonic, wall }
    }

    /// How much time has passed for a holder: the larger of the two spans.
    pub fn longest_since(self, earlier: Instants) -> Duration {
        self.monotonic_since(earlier).max(self.wall_since(earlier))
    }

    /// How much time has passed for a contender: the smaller of the two spans.
    pub fn shortest_since(self, earlier: Instants) -> Duration {
        self.monotonic_since(earlier).min(self.wall_since(earlier))
    }

    /// How much time has passed on the monotonic clock.
    pub(crate) fn monotonic_since(self, earlier: Instants) -> Duration {
        self.monotonic.saturating_sub(earlier.monotonic)
    }

    fn wall_since(self, earlier: Instants) -> Duration {
        self.wall.saturating_sub(earlier.wall)
    }
}

/// Returns the milliseconds of a duration, rounded up, because a lease must never be shorter than the caller asked
/// for.
pub fn millis_rounded_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns the milliseconds of a duration, rounded down, because time that did not pass must not be counted.
pub(crate) fn millis_rounded_down(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time of this epoch millisecond. `None` where the platform cannot represent it.
pub fn from_epoch_millis(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic: u64, wall: u64) -> Instants {
        Instants { monotonic: Duration::from_secs(monotonic), wall: Duration::from_secs(wall) }
    }

    #[test]
    fn a_frozen_monotonic_clock_does_not_make_the_holder_young() {
        assert_eq!(at(5, 160).longest_since(at(5, 100)), Duration::from_secs(60));
    }

    #[test]
    fn a_wall_clock_that_was_set_forward_does_not_make_the_holder_look_dead() {
        assert_eq!(at(6, 900).shortest_since(at(5, 100)), Duration::from_secs(1));
    }

    #[test]
    fn a_wall_clock_that_was_set_back_counts_as_no_time() {
        assert_eq!(at(9, 50).shortest_since(at(5, 100)), Duration::ZERO);
        assert_eq!(at(9, 50).longest_since(at(5, 100)), Duration::from_secs(4));
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        assert_eq!(millis_rounded_up(Duration::from_nanos(1)), 1);
        assert_eq!(millis_rounded_up(Duration::from_millis(7)), 7);
        assert_eq!(millis_rounded_up(Duration::MAX), u64::MAX);
    }
}
