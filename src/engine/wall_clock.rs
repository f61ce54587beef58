//! Compares the local wall clock with the server's, to detect gross errors.
//!
//! Every response of DynamoDB carries a `Date` header in whole seconds. The header's second, the round trip and the
//! allowed skew explain some difference. A larger one means that the local wall clock, or the header, is wrong by
//! more than the takeover rule allows. Until the next response shows which, the wall clock is not used against other
//! holders, and the end of a lease counts from the later of the two clocks. When two responses in a row
//! agree, the local clock is wrong. From then on it is never used against other holders again, and its readings are
//! corrected by the measured difference. A response after a long round trip may prove nothing, and changes nothing
//! then.

use lambda_lock_protocol::{DEFAULT_SKEW, Instants, ServerTime, WallClock};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// By how much a reading may be later than the clock, so that the releases of a client that acquires and releases
/// several times in a millisecond do not refuse its own Claims. A hundredth of the default skew.
const MAX_LEAD_MILLIS: u64 = 20;

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
    /// What the last response proved, until the next one confirms it. `None` where the clock is right.
    shown: Mutex<Option<Difference>>,
    /// The newest end of a lease that this client wrote by releasing it.
    released_millis: AtomicU64,
}

/// By how much a response showed the server's clock to be ahead of the local one, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Difference {
    /// The most likely value.
    probable: i64,
    /// The largest value that the header's second and the round trip allow.
    largest: i64,
}

/// The differences that one response allows.
struct DifferenceRange {
    smallest: i64,
    difference: Difference,
}

/// What a response proves of the local clock.
enum Proof {
    /// It differs by no more than the allowed skew and the header's second.
    Right,
    Wrong,
    Nothing,
}

impl WallClockCheck {
    pub(crate) fn new(max_skew: Option<Duration>) -> Self {
        let max_skew_millis = i64::try_from(max_skew.unwrap_or(DEFAULT_SKEW).as_millis()).unwrap_or(i64::MAX);
        Self {
            max_skew_millis,
            offset_millis: AtomicI64::new(0),
            distrusted: AtomicBool::new(false),
            shown: Mutex::new(None),
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
            if ahead <= MAX_LEAD_MILLIS { millis.max(released) } else { millis }
        };
        let shown = *self.shown();
        let allowed = shown.map_or(0, |shown| local.saturating_add_signed(shown.largest));
        WallClock {
            millis: leading(corrected),
            written: leading(corrected.max(local)),
            latest: leading(corrected.max(local).max(allowed)),
            trusted: !self.distrusted.load(Ordering::Relaxed) && shown.is_none(),
        }
    }

    /// Records that a release with this lease end was sent. The end is at least a millisecond after the grant, and
    /// may still lie ahead. A Claim of this client must not look older than it. Otherwise the Claim would be refused
    /// like a delayed copy.
    pub(crate) fn released(&self, ends_millis: u64) {
        self.released_millis.fetch_max(ends_millis, Ordering::Relaxed);
    }

    /// Compares the server's time with the span in which it must have been read. Returns by how many milliseconds the
    /// server's clock is probably ahead.
    ///
    /// The newest responses decide the correction. The clock is never trusted again, because a clock that was wrong
    /// once may be wrong again. To observe a holder takes longer but needs no wall clock.
    pub(crate) fn compare(&self, server: ServerTime, received: Instants) -> i64 {
        let range = DifferenceRange::of(server, received);
        match self.proof(&range) {
            Proof::Nothing => {}
            Proof::Right => {
                *self.shown() = None;
                self.offset_millis.store(0, Ordering::Relaxed);
            }
            Proof::Wrong => self.found_wrong(range.difference),
        }
        range.difference.probable
    }

    fn found_wrong(&self, difference: Difference) {
        let before = self.shown().replace(difference);
        let offset = difference.probable;
        if before.is_none_or(|before| before.probable.abs_diff(offset) > AGREEMENT_MILLIS) {
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

    fn shown(&self) -> MutexGuard<'_, Option<Difference>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proof(&self, &DifferenceRange { smallest, difference: Difference { largest, .. } }: &DifferenceRange) -> Proof {
        let allowed = self.max_skew_millis;
        if smallest > allowed || largest < -allowed {
            return Proof::Wrong;
        }
        let allowed = allowed.saturating_add(1000);
        if smallest >= -allowed && largest <= allowed { Proof::Right } else { Proof::Nothing }
    }
}

impl DifferenceRange {
    fn of(ServerTime { sent, millis }: ServerTime, received: Instants) -> Self {
        let server = i64::try_from(millis).unwrap_or(i64::MAX);
        let received_wall = signed_millis(received.wall);
        // By the pessimistic clock, so that a sandbox that was frozen meanwhile does not look like a wrong clock.
        let round_trip = signed_millis(received.longest_since(sent));
        let sent_wall = received_wall.saturating_sub(round_trip);
        // The header's second is cut off.
        let largest = server.saturating_add(1000).saturating_sub(sent_wall);
        let probable = server.saturating_add(500).saturating_sub(sent_wall.saturating_add(round_trip / 2));
        Self { smallest: server.saturating_sub(received_wall), difference: Difference { probable, largest } }
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

    /// A response whose header has this second.
    fn respond(check: &WallClockCheck, sent: u64, received: u64, second: u64) {
        check.compare(ServerTime { sent: at(sent), millis: second * 1000 }, at(received));
    }

    /// The reading after so many responses of this kind.
    fn after(answers: usize, sent: u64, received: u64) -> WallClock {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        for _ in 0..answers {
            respond(&check, sent, received, SERVER);
        }
        check.reading(at(received))
    }

    /// What an untrusted clock shows: the time, the time to write, and the time from which a lease counts.
    fn untrusted(read: WallClock) -> (u64, u64, u64) {
        assert!(!read.trusted);
        (read.millis, read.written, read.latest)
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
            let right = WallClock { millis: received, written: received, latest: received, trusted: true };
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
        respond(&check, right, right, SERVER - 3600);
        assert_eq!(untrusted(check.reading(at(right))), (right, right, right));
        respond(&check, right, right, SERVER);
        assert_eq!(check.reading(at(right)), WallClock { millis: right, written: right, latest: right, trusted: true });
    }

    #[test]
    fn wrong_answers_with_a_right_one_in_between_correct_nothing() {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        let right = SERVER * 1000;
        for off in [3600, 0, 3600] {
            respond(&check, right, right, SERVER - off);
        }
        assert_eq!(untrusted(check.reading(at(right))), (right, right, right));
    }

    #[test]
    fn an_answer_after_a_long_round_trip_changes_nothing_that_is_known() {
        let right = SERVER * 1000;
        let slow = |check: &WallClockCheck| respond(check, right - 10_000, right + 1_000, SERVER);
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        slow(&check);
        assert!(check.reading(at(right)).trusted);
        respond(&check, right, right, SERVER - 3600);
        slow(&check);
        assert_eq!(untrusted(check.reading(at(right))), (right, right, right));
        respond(&check, right, right, SERVER - 3600);
        slow(&check);
        assert_eq!(check.reading(at(right)).millis, right - 3_600_000 + 500);
    }

    #[test]
    fn two_answers_that_contradict_each_other_correct_nothing() {
        let check = WallClockCheck::new(Some(Duration::from_secs(2)));
        let right = SERVER * 1000;
        for hours in [1, 2, 3] {
            respond(&check, right, right, SERVER - 3600 * hours);
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
    fn after_one_answer_a_lease_ends_no_earlier_than_by_the_latest_time_that_dynamodb_s_clock_can_show() {
        let server = SERVER * 1000;
        let read = after(1, server - 60_100, server - 60_000);
        assert_eq!((read.millis, read.latest), (server - 60_000, server + 1000 + 100));
    }

    #[test]
    fn a_clock_that_was_put_right_is_no_longer_corrected_but_not_trusted_again() {
        let check = WallClockCheck::new(None);
        for _ in 0..2 {
            respond(&check, SERVER * 1000 + 9_000, SERVER * 1000 + 9_000, SERVER);
        }
        respond(&check, SERVER * 1000, SERVER * 1000, SERVER);
        let right = SERVER * 1000;
        assert_eq!(untrusted(check.reading(at(right))), (right, right, right));
    }
}
