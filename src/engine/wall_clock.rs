//! Compares the local wall clock with the server's, to detect gross errors.
//!
//! Every response of DynamoDB carries a `Date` header in whole seconds. The header's second, the round trip and the
//! allowed skew explain some difference. A larger one means that the local wall clock, or the header, is wrong by
//! more than the takeover rule allows. Until the next response shows which, the wall clock is not used against other
//! holders. When two responses in a row agree, the local clock is wrong. From then on it is never used against other
//! holders again, and its readings are corrected by the measured difference.

use crate::protocol::{DEFAULT_SKEW, Instants, WallClock};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// By how much a reading may be later than the clock, so that the releases of a client that acquires and releases
/// several times in a millisecond do not refuse its own Claims. A hundredth of the default skew.
const LONGEST_LEAD_MILLIS: u64 = 20;

/// Two responses agree when the differences that they show differ by no more than this. Each header has whole
/// seconds.
const AGREEMENT_MILLIS: u64 = 1500;

/// What is known about the local wall clock.
#[derive(Debug)]
pub(crate) struct WallClockCheck {
    max_skew_millis: i64,
    offset_millis: AtomicI64,
    /// Two responses agreed at some time that the clock was wrong.
    distrusted: AtomicBool,
    /// The last response showed that the clock is wrong.
    doubted: AtomicBool,
    /// The difference that the last response showed, until the next one confirms it.
    unconfirmed: Mutex<Option<i64>>,
    /// The newest end of a lease that this client wrote by releasing it.
    released_millis: AtomicU64,
}

impl WallClockCheck {
    pub(crate) fn new(max_skew: Option<Duration>) -> Self {
        let max_skew_millis = i64::try_from(max_skew.unwrap_or(DEFAULT_SKEW).as_millis()).unwrap_or(i64::MAX);
        Self {
            max_skew_millis,
            offset_millis: AtomicI64::new(0),
            distrusted: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            unconfirmed: Mutex::new(None),
            released_millis: AtomicU64::new(0),
        }
    }

    /// The wall clock at this moment, corrected where it was found wrong.
    pub(crate) fn reading(&self, now: Instants) -> WallClock {
        let local = u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX);
        let corrected = local.saturating_add_signed(self.offset_millis.load(Ordering::Relaxed));
        let released = self.released_millis.load(Ordering::Relaxed);
        let leading = |millis: u64| {
            let ahead = released.saturating_sub(millis);
            if ahead <= LONGEST_LEAD_MILLIS { millis.max(released) } else { millis }
        };
        WallClock {
            millis: leading(corrected),
            written: leading(corrected.max(local)),
            trusted: !self.distrusted.load(Ordering::Relaxed) && !self.doubted.load(Ordering::Relaxed),
        }
    }

    /// Records that a release with this lease end was sent. The end is at least a millisecond after the grant, and
    /// may still lie ahead. A Claim of this client must not look older than it. Otherwise the Claim would be refused
    /// like a delayed copy.
    pub(crate) fn released(&self, ends_millis: u64) {
        self.released_millis.fetch_max(ends_millis, Ordering::Relaxed);
    }

    /// Compares the server's time with the span in which it must have been read.
    ///
    /// The newest responses decide the correction. The clock is never trusted again, because a clock that was wrong
    /// once may be wrong again. To observe a holder takes longer but needs no wall clock.
    pub(crate) fn compare(&self, sent: Instants, received: Instants, server: SystemTime) {
        let Some(offset) = self.offset_shown_by(sent, received, server) else { return };
        let mut unconfirmed = self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner);
        self.doubted.store(offset != 0, Ordering::Relaxed);
        if offset == 0 {
            *unconfirmed = None;
            self.offset_millis.store(0, Ordering::Relaxed);
            return;
        }
        let before = unconfirmed.replace(offset);
        if before.is_none_or(|before| before.abs_diff(offset) > AGREEMENT_MILLIS) {
            return;
        }
        self.offset_millis.store(offset, Ordering::Relaxed);
        if !self.distrusted.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                offset_millis = offset,
                "the local wall clock differs from DynamoDB's by more than max_clock_skew: it is no longer trusted \
                 for takeovers, dead holders are recognised by watching them for a whole lease"
            );
        }
    }

    /// The correction of the local wall clock that this response shows. Zero where the clock is within bounds.
    fn offset_shown_by(&self, sent: Instants, received: Instants, server: SystemTime) -> Option<i64> {
        let server = signed_millis(server.duration_since(UNIX_EPOCH).ok()?);
        let received_wall = signed_millis(received.wall);
        // By the pessimistic clock, so that a sandbox that was frozen meanwhile does not look like a wrong clock.
        let round_trip = signed_millis(received.longest_since(sent));
        let sent_wall = received_wall.saturating_sub(round_trip);
        let ahead = sent_wall.saturating_sub(server.saturating_add(1000));
        let behind = server.saturating_sub(received_wall);
        let offset = server.saturating_add(500).saturating_sub(sent_wall.saturating_add(round_trip / 2));
        Some(if ahead.max(behind) > self.max_skew_millis { offset } else { 0 })
    }
}

fn signed_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: u64 = 1_800_000_000;

    fn at(wall_millis: u64) -> Instants {
        Instants { monotonic: Duration::from_millis(wall_millis % 1_000_000), wall: Duration::from_millis(wall_millis) }
    }

    fn server(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// The reading after so many responses of this kind.
    fn after(answers: usize, sent: u64, received: u64) -> WallClock {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        for _ in 0..answers {
            check.compare(at(sent), at(received), server(SERVER));
        }
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
            let right = WallClock { millis: received, written: received, trusted: true };
            assert_eq!(after(2, sent, received), right);
        }
    }

    #[test]
    fn a_clock_that_two_answers_find_grossly_wrong_is_corrected_and_no_longer_trusted() {
        let server = SERVER * 1000;
        let ahead = after(2, server + 60_000, server + 60_100);
        assert!(!ahead.trusted);
        assert_eq!(ahead.millis, server + 60_100 - 60_050 + 500);
        let behind = after(2, server - 60_100, server - 60_000);
        assert!(!behind.trusted);
        assert_eq!(behind.millis, server + 500 + 50);
    }

    #[test]
    fn one_answer_corrects_nothing_and_keeps_the_clock_from_being_used_until_the_next_one() {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        let right = SERVER * 1000;
        check.compare(at(right), at(right), server(SERVER - 3600));
        assert_eq!(check.reading(at(right)), WallClock { millis: right, written: right, trusted: false });
        check.compare(at(right), at(right), server(SERVER));
        assert_eq!(check.reading(at(right)), WallClock { millis: right, written: right, trusted: true });
    }

    #[test]
    fn wrong_answers_with_a_right_one_in_between_correct_nothing() {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        let right = SERVER * 1000;
        for off in [3600, 0, 3600] {
            check.compare(at(right), at(right), server(SERVER - off));
        }
        assert_eq!(check.reading(at(right)), WallClock { millis: right, written: right, trusted: false });
    }

    #[test]
    fn two_answers_that_contradict_each_other_correct_nothing() {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        let right = SERVER * 1000;
        for hours in [1, 2, 3] {
            check.compare(at(right), at(right), server(SERVER - 3600 * hours));
            assert_eq!(check.reading(at(right)).millis, right);
        }
    }

    #[test]
    fn what_is_written_for_others_is_never_earlier_than_the_local_clock_says() {
        let server = SERVER * 1000;
        assert_eq!(after(2, server + 60_000, server + 60_000).written, server + 60_000);
        assert_eq!(after(2, server - 60_000, server - 60_000).written, server + 500);
    }

    #[test]
    fn a_clock_that_was_put_right_is_no_longer_corrected_but_not_trusted_again() {
        let check = WallClockCheck::new(None);
        for _ in 0..2 {
            check.compare(at(SERVER * 1000 + 9_000), at(SERVER * 1000 + 9_000), server(SERVER));
        }
        check.compare(at(SERVER * 1000), at(SERVER * 1000), server(SERVER));
        let right = SERVER * 1000;
        assert_eq!(check.reading(at(right)), WallClock { millis: right, written: right, trusted: false });
    }
}
