//! The line of those who wait for a lock, as its row has it: two counters, and who has given up.

use super::schema;
use super::value::{Item, Value};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// So many tickets are listed as given up. Who gives up beyond that is passed like one that is gone.
pub(crate) const MAX_LEFT: u64 = 100;

/// The tickets of a lock's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The last ticket that was given.
    pub last: u64,
    /// The last ticket that was served.
    pub served: Option<u64>,
    /// The last ticket of a caller that sleeps until it is woken.
    pub sleeper: Option<u64>,
    /// The tickets whose callers have given up, as the row lists them. Some may be over.
    pub left: Vec<u64>,
}

impl Line {
    /// Reads the line of a row whose record was not checked. `None` where there never was one.
    pub fn of_row(row: &Item) -> Option<Self> {
        let left = match row.get(schema::LEFT_TICKETS) {
            Some(Value::Ns(left)) => left.iter().filter_map(|ticket| ticket.parse().ok()).collect(),
            _ => Vec::new(),
        };
        let (served, sleeper) = (row.number(schema::SERVED_TICKET), row.number(schema::LAST_SLEEPER));
        Some(Self { last: row.number(schema::LAST_TICKET)?, served, sleeper, left })
    }

    /// Whether somebody waits in line, as far as the row tells.
    pub fn is_open(&self) -> bool {
        self.waiting() > 0
    }

    /// Whether a ticket was given that was not served. Its caller may have given up.
    pub(super) fn has_tickets(&self) -> bool {
        self.served.is_none_or(|served| self.last > served)
    }

    /// How many callers wait in line. Some may be gone without having said so.
    pub fn waiting(&self) -> u64 {
        match self.served {
            // A Claim is refused where a counter is missing.
            None => self.last.max(1),
            Some(served) => {
                self.last.saturating_sub(served).saturating_sub(self.left_before(self.last.saturating_add(1)))
            }
        }
    }

    /// The tickets to wake when the lock is free, if one of those in line sleeps: from the next one to be served that was not given
    /// up, whose caller may be awake or gone, to the last one that sleeps.
    pub fn to_wake(&self) -> Option<RangeInclusive<u64>> {
        let last = self.sleeper?.min(self.last);
        let mut tickets = self.served.unwrap_or(0).saturating_add(1)..=last;
        let next = tickets.find(|ticket| !self.left.contains(ticket))?;
        self.is_open().then_some(next..=last)
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

    /// How many come before this ticket. Zero for one that was passed: its caller may come at any release.
    pub(super) fn ahead_of(&self, ticket: u64) -> u32 {
        let given = ticket.saturating_sub(self.served.unwrap_or(0)).saturating_sub(1);
        u32::try_from(given.saturating_sub(self.left_before(ticket))).unwrap_or(u32::MAX)
    }

    /// The tickets that the row need not list any more once this one is served.
    pub(super) fn over_with(&self, ticket: u64) -> Vec<u64> {
        self.left.iter().copied().filter(|left| *left <= ticket).collect()
    }

    /// How many before this ticket have given up and were not passed.
    fn left_before(&self, ticket: u64) -> u64 {
        self.left.iter().filter(|left| **left < ticket && self.has(**left)).count() as u64
    }
}

/// The turns that a caller has left to those ahead of it in line. One call hands them to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Turns {
    /// The last ticket that was served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    served: Option<u64>,
    /// The caller has left the grant that it has seen last to those ahead, although it was over.
    left: bool,
    /// How often somebody who is not in line was granted such a lock, since that ticket was served.
    pub(super) lost: u32,
}

impl Turns {
    /// Records what a look has shown. `served` is `None` where the row does not tell.
    pub(super) fn see(&mut self, served: Option<u64>, is_new_grant: bool) {
        let served = served.or(self.served);
        if served != self.served {
            self.lost = 0;
        } else if self.left && is_new_grant {
            self.lost = self.lost.saturating_add(1);
        }
        (self.served, self.left) = (served, false);
    }

    /// The caller leaves the lock, as it has seen it last, to those ahead.
    pub(super) fn leave(&mut self) {
        self.left = true;
    }

    /// What the next call needs to know. `None` where nothing was lost, nor can be.
    pub(super) fn for_next_call(self) -> Option<Self> {
        (self.left || self.lost > 0).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_that_was_passed_has_nobody_ahead() {
        let line = |last, served, sleeper| Line { last, served, sleeper, left: Vec::new() };
        let some = line(9, Some(4), None);
        assert_eq!([3, 4, 5, 6, 9].map(|ticket| some.ahead_of(ticket)), [0, 0, 0, 1, 4]);
        assert_eq!((some.waiting(), line(9, Some(9), Some(9)).is_open()), (5, false));
        assert_eq!([1, 3].map(|ticket| line(9, None, None).ahead_of(ticket)), [0, 2], "nobody was served yet");
        assert!(line(0, None, None).is_open(), "a Claim is refused where a counter is missing");
    }

    #[test]
    fn a_ticket_that_was_never_given_has_no_place_and_keeps_nobody_from_the_lock() {
        let line = Line { last: 9, served: Some(4), sleeper: None, left: Vec::new() };
        assert_eq!([4, 5, 9, 10].map(|ticket| line.has(ticket)), [false, true, true, false]);
        assert_eq!([4, 5, 6, 9, 10].map(|ticket| line.is_turn_of(ticket)), [true, true, false, false, true]);
    }

    #[test]
    fn those_to_wake_are_in_line_up_to_the_last_one_that_sleeps() {
        for (last, served, sleeper, to_wake) in [
            (9, Some(4), Some(7), Some(5..=7)),
            (9, None, Some(2), Some(1..=2)),
            (9, Some(4), Some(5), Some(5..=5)),
            (9, Some(4), Some(12), Some(5..=9)),
            (9, Some(4), Some(4), None),
            (9, Some(4), None, None),
            // The row was written by hand: nobody is in line.
            (4, Some(4), Some(7), None),
        ] {
            let line = Line { last, served, sleeper, left: Vec::new() };
            assert_eq!(line.to_wake(), to_wake, "{line:?}");
        }
        let line = |left: &[u64]| Line { last: 9, served: Some(4), sleeper: Some(7), left: left.to_vec() };
        assert_eq!(
            [&[5, 6][..], &[3, 6], &[5, 6, 7]].map(|left| line(left).to_wake()),
            [Some(7..=7), Some(5..=7), None]
        );
    }

    #[test]
    fn who_has_given_up_is_not_waited_for_whatever_else_the_row_lists() {
        let row = |left: Value| {
            let number = |number: u64| Value::N(number.to_string());
            let line =
                [(schema::LAST_TICKET, number(9)), (schema::SERVED_TICKET, number(4)), (schema::LEFT_TICKETS, left)];
            line.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<Item>()
        };
        let listed = |left: &[&str]| Value::Ns(left.iter().map(|ticket| (*ticket).to_owned()).collect());
        for (left, waiting, ahead_of_the_last) in [
            (listed(&["8", "6"]), 3, 2),
            (listed(&["9"]), 4, 4),
            (listed(&["5", "6", "7", "8", "9"]), 0, 0),
            // Served, never given, or no tickets.
            (listed(&["3", "4", "10", "99999999999999999999", "6", "-7", "6.5", "1e1"]), 4, 3),
            (Value::S("5 6".to_owned()), 5, 4),
        ] {
            let line = Line::of_row(&row(left.clone())).unwrap();
            assert_eq!((line.waiting(), line.ahead_of(9)), (waiting, ahead_of_the_last), "{left:?}");
            assert!(line.has_tickets());
        }
        let line = Line::of_row(&row(listed(&["8", "3", "6"]))).unwrap();
        assert_eq!([5, 6, 8].map(|ticket| line.over_with(ticket)), [vec![3], vec![3, 6], vec![8, 3, 6]]);
    }
}
