//! The line of those who wait for a lock, as its row has it: two counters, and for how long holders hold the lock.

use super::instants::Instants;
use super::lease::MAX_LEASE;
use super::schema;
use super::value::{Item, Value};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The tickets of a lock's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The last ticket that was given.
    pub last: u64,
    /// The last ticket that was served.
    pub served: Option<u64>,
    /// The last ticket of a caller that sleeps until it is woken.
    pub sleeper: Option<u64>,
}

impl Line {
    /// Reads the line of a row whose record was not checked. `None` where there never was one.
    pub fn of_row(row: &Item) -> Option<Self> {
        let (last, served) = (number(row, schema::LAST_TICKET)?, number(row, schema::SERVED_TICKET));
        Some(Self { last, served, sleeper: number(row, schema::LAST_SLEEPER) })
    }

    /// Whether somebody waits in line, as far as the counters tell.
    pub fn is_open(&self) -> bool {
        self.waiting() > 0
    }

    /// How many tickets were given and not yet served. Their callers may be gone.
    pub fn waiting(&self) -> u64 {
        self.served.map_or(self.last.max(1), |served| self.last.saturating_sub(served))
    }

    /// Whether a caller that sleeps may be in line.
    pub(super) fn has_sleeper(&self) -> bool {
        self.sleeper > Some(self.served.unwrap_or(0))
    }

    /// The tickets to wake when the lock is free, if one of those in line sleeps: from the next one to be served, whose caller
    /// may be awake or gone, to the last one that sleeps.
    pub fn to_wake(&self) -> Option<RangeInclusive<u64>> {
        let next = self.served.unwrap_or(0).saturating_add(1);
        self.sleeper.filter(|last| self.is_open() && *last >= next).map(|last| next..=last)
    }

    /// Whether a free lock is this ticket's before all others'. So it is for one that was passed, and for one that means
    /// nothing any more, because the counters began again.
    pub fn is_turn_of(&self, ticket: u64) -> bool {
        ticket > self.last || self.ahead_of(ticket) == 0
    }

    /// Whether this ticket was given and not yet served, so that its caller is woken when it is its turn.
    pub fn has(&self, ticket: u64) -> bool {
        ticket <= self.last && Some(ticket) > self.served
    }

    /// How many tickets come before this one. Zero for one that was passed: its caller may come at any release.
    pub(super) fn ahead_of(&self, ticket: u64) -> u32 {
        let ahead = ticket.saturating_sub(self.served.unwrap_or(0)).saturating_sub(1);
        u32::try_from(ahead).unwrap_or(u32::MAX)
    }
}

/// For how long holders hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTimes {
    /// A mean in which the last times count most.
    pub mean: Duration,
    /// By how much the times differ from it.
    pub spread: Duration,
}

impl HoldTimes {
    /// Reads them from a row. `None` where they are missing, or no numbers.
    pub(super) fn of_row(row: &Item) -> Option<Self> {
        let duration = |name| Some(Duration::from_millis(number(row, name)?).min(MAX_LEASE));
        Some(Self { mean: duration(schema::HELD_MILLIS)?, spread: duration(schema::HELD_SPREAD)? })
    }

    /// With one more time: a third of the difference counts.
    pub(super) fn and(earlier: Option<Self>, held: Duration) -> Self {
        match earlier {
            // The row has whole milliseconds, and one time alone is not regular.
            None => Self { mean: held, spread: (held / 4).saturating_add(Duration::from_millis(1)) },
            Some(Self { mean, spread }) => Self {
                mean: (mean * 2).saturating_add(held) / 3,
                spread: (spread * 2).saturating_add(held.abs_diff(mean)) / 3,
            },
        }
    }

    pub(super) fn are_regular(&self) -> bool {
        self.spread < self.mean / 4
    }
}

/// What the holder of a lock tells those in line when it releases the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineUpdate {
    pub times: HoldTimes,
    /// The tickets up to this one are served. Nobody came for them, so they would keep others from the lock.
    pub serves: Option<u64>,
}

/// What the holder of a lock knows of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSeen {
    since: Instants,
    earlier: Option<HoldTimes>,
    deserted: Option<u64>,
}

impl LineSeen {
    /// In the row of a grant. `None` where nobody ever waited in line. Those who seem to wait count as gone if the grant
    /// was possible only because of that. One that has just come may be among them: its ticket is passed then.
    pub(super) fn of_row(since: Instants, row: &Item, is_deserted: bool) -> Option<Self> {
        let line = Line::of_row(row)?;
        let earlier = HoldTimes::of_row(row);
        Some(Self { since, earlier, deserted: (is_deserted && line.is_open()).then_some(line.last) })
    }

    /// What the holder tells when it releases the lock now.
    pub(super) fn update(&self, now: Instants) -> LineUpdate {
        LineUpdate { times: HoldTimes::and(self.earlier, now.longest_since(self.since)), serves: self.deserted }
    }
}

fn number(row: &Item, name: &str) -> Option<u64> {
    match row.get(name) {
        Some(Value::N(number)) => number.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_holders_follow_the_last_ones() {
        let millis = Duration::from_millis;
        let first = HoldTimes::and(None, millis(600));
        assert_eq!(first, HoldTimes { mean: millis(600), spread: millis(151) });
        let second = HoldTimes::and(Some(first), millis(900));
        assert_eq!(second, HoldTimes { mean: millis(700), spread: (millis(302) + millis(300)) / 3 });
        let mut times = second;
        for _ in 0..20 {
            times = HoldTimes::and(Some(times), millis(900));
        }
        assert!(times.mean > millis(899) && times.are_regular(), "{times:?}");
    }

    #[test]
    fn one_time_alone_is_not_regular() {
        let whole = |duration: Duration| Duration::from_millis(u64::try_from(duration.as_millis()).unwrap());
        for held in (1..20).chain([501, 502, 503, 600_003]) {
            for micros in [0, 300, 900] {
                let HoldTimes { mean, spread } = HoldTimes::and(None, Duration::from_micros(held * 1_000 + micros));
                // As the row has them.
                let times = HoldTimes { mean: whole(mean), spread: whole(spread) };
                assert!(!times.are_regular(), "{times:?}");
            }
        }
    }

    #[test]
    fn a_ticket_that_was_passed_has_nobody_ahead() {
        let line = Line { last: 9, served: Some(4), sleeper: None };
        assert_eq!([3, 4, 5, 6, 9].map(|ticket| line.ahead_of(ticket)), [0, 0, 0, 1, 4]);
        assert_eq!((line.waiting(), Line { last: 9, served: Some(9), sleeper: Some(9) }.is_open()), (5, false));
        assert!(
            Line { last: 0, served: None, sleeper: None }.is_open(),
            "a Claim is refused where a counter is missing"
        );
    }

    #[test]
    fn those_to_wake_are_in_line_up_to_the_last_one_that_sleeps() {
        for (last, served, sleeper, to_wake) in [
            (9, Some(4), Some(7), Some(5..=7)),
            (9, None, Some(2), Some(1..=2)),
            (9, Some(4), Some(5), Some(5..=5)),
            (9, Some(4), Some(4), None),
            (9, Some(4), None, None),
            // The row was written by hand: nobody is in line.
            (4, Some(4), Some(7), None),
        ] {
            let line = Line { last, served, sleeper };
            assert_eq!(line.to_wake(), to_wake, "{line:?}");
        }
    }
}
