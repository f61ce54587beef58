//! Compares the local wall clock with the server's, as a net for gross errors.
//!
//! Every answer carries a `Date` header of whole seconds. When it cannot be explained by the
//! header's second, the round trip and the skew that is allowed for, the local wall clock is wrong
//! by more than the takeover rule can bear: from then on it is no longer used against other
//! holders, and what it says is corrected by the measured difference.

use crate::protocol::{Moment, WallClock};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The skew that is allowed for where takeover by wall clock is switched off.
const DEFAULT_SKEW: Duration = Duration::from_secs(2);

/// By how much the clock may be said to be later than it is, so that a client that acquires and releases
/// several times in a millisecond is not refused by its own releases. A hundredth of the default skew.
const LONGEST_LEAD_MILLIS: u64 = 20;

/// What is known of the local wall clock.
#[derive(Debug)]
pub(crate) struct WallClockCheck {
    max_skew_millis: i64,
    offset_millis: AtomicI64,
    distrusted: AtomicBool,
    /// The newest end of a lease that this client wrote into a row by releasing it.
    released_millis: AtomicU64,
}

impl WallClockCheck {
    pub(crate) fn new(max_skew: Option<Duration>) -> Self {
        let max_skew_millis = i64::try_from(max_skew.unwrap_or(DEFAULT_SKEW).as_millis()).unwrap_or(i64::MAX);
        Self {
            max_skew_millis,
            offset_millis: AtomicI64::new(0),
            distrusted: AtomicBool::new(false),
            released_millis: AtomicU64::new(0),
        }
    }

    /// The wall clock at this moment, corrected where it was found wrong.
    pub(crate) fn reading(&self, now: Moment) -> WallClock {
        let millis = u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX);
        let millis = millis.saturating_add_signed(self.offset_millis.load(Ordering::Relaxed));
        let released = self.released_millis.load(Ordering::Relaxed);
        let ahead = released.saturating_sub(millis);
        WallClock {
            millis: if ahead <= LONGEST_LEAD_MILLIS { millis.max(released) } else { millis },
            trusted: !self.distrusted.load(Ordering::Relaxed),
        }
    }

    /// A release was sent that says: the lease ended then. That is at least a millisecond after the grant,
    /// and may be one that has not come yet: a Claim of this client must not look older, or it would be
    /// refused as a delayed copy of itself.
    pub(crate) fn released(&self, ends_millis: u64) {
        self.released_millis.fetch_max(ends_millis, Ordering::Relaxed);
    }

    /// Compares the server's time with the span in which it must have been read.
    ///
    /// The newest answer decides about the correction. Trust is not won back: a clock that was
    /// wrong once may be wrong again, and watching a holder costs time but needs no wall clock.
    pub(crate) fn compare(&self, sent: Moment, received: Moment, server: SystemTime) {
        let Ok(server) = server.duration_since(UNIX_EPOCH) else { return };
        let (server, received_wall) = (signed_millis(server), signed_millis(received.wall));
        // By the pessimistic clock, so that a sandbox frozen on the way does not look like a wrong clock.
        let round_trip = signed_millis(received.longest_since(sent));
        let sent_wall = received_wall.saturating_sub(round_trip);
        let ahead = sent_wall.saturating_sub(server + 1000);
        let behind = server.saturating_sub(received_wall);
        let offset = if ahead.max(behind) > self.max_skew_millis {
            (server + 500).saturating_sub(sent_wall + round_trip / 2)
        } else {
            0
        };
        self.offset_millis.store(offset, Ordering::Relaxed);
        if offset != 0 && !self.distrusted.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                offset_millis = offset,
                "the local wall clock differs from DynamoDB's by more than max_clock_skew: it is no longer trusted \
                 for takeovers, dead holders are recognised by watching them for a whole lease"
            );
        }
    }
}

fn signed_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: u64 = 1_800_000_000;

    fn at(wall_millis: u64) -> Moment {
        Moment { monotonic: Duration::from_millis(wall_millis % 1_000_000), wall: Duration::from_millis(wall_millis) }
    }

    fn check(sent: u64, received: u64) -> WallClock {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        check.compare(at(sent), at(received), UNIX_EPOCH + Duration::from_secs(SERVER));
        check.reading(at(received))
    }

    #[test]
    fn a_clock_within_skew_second_and_round_trip_is_trusted() {
        let server = SERVER * 1000;
        for (sent, received) in [
            (server, server + 5),
            (server + 3_000, server + 3_000),
            (server - 2_000, server - 2_000),
            (server - 9_000, server + 1_000),
            (server + 2_990, server + 9_000),
        ] {
            assert_eq!(check(sent, received), WallClock { millis: received, trusted: true });
        }
    }

    #[test]
    fn a_clock_that_is_grossly_wrong_is_corrected_and_no_longer_trusted() {
        let server = SERVER * 1000;
        let ahead = check(server + 60_000, server + 60_100);
        assert!(!ahead.trusted);
        assert_eq!(ahead.millis, server + 60_100 - 60_050 + 500);
        let behind = check(server - 60_100, server - 60_000);
        assert!(!behind.trusted);
        assert_eq!(behind.millis, server + 500 + 50);
    }

    #[test]
    fn a_clock_that_was_put_right_is_no_longer_corrected_but_not_trusted_again() {
        let check = WallClockCheck::new(None);
        let server = UNIX_EPOCH + Duration::from_secs(SERVER);
        check.compare(at(SERVER * 1000 + 9_000), at(SERVER * 1000 + 9_000), server);
        check.compare(at(SERVER * 1000), at(SERVER * 1000), server);
        assert_eq!(check.reading(at(SERVER * 1000)), WallClock { millis: SERVER * 1000, trusted: false });
    }
}
