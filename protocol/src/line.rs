//! The line of those who wait for a lock, as its row has it: two counters, and who has given up.

use super::schema;
use super::value::{Item, Value};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// So many tickets are listed as given up. Who gives up beyond that is passed like one that is gone.
const MAX_LEFT: usize = 100;

/// The tickets of a lock's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The last ticket that was given.
    pub last: u64,
    /// The last ticket that was served.
    pub served: Option<u64>,
    /// The last ticket of a caller that sleeps until it is woken.
    pub sleeper: Option<u64>,
    /// The tickets whose callers have given up, as the row lists them.
    pub left: Option<String>,
}

impl Line {
    /// Reads the line of a row whose record was not checked. `None` where there never was one.
    pub fn of_row(row: &Item) -> Option<Self> {
        let number = |name| match row.get(name) {
            Some(Value::N(number)) => number.parse().ok(),
            _ => None,
        };
        let left = match row.get(schema::LEFT_TICKETS) {
            Some(Value::S(left)) => Some(left.clone()),
            _ => None,
        };
        let (served, sleeper) = (number(schema::SERVED_TICKET), number(schema::LAST_SLEEPER));
        Some(Self { last: number(schema::LAST_TICKET)?, served, sleeper, left })
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
            Some(served) => self.last.saturating_sub(served).saturating_sub(self.left().len() as u64),
        }
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

    /// How many come before this ticket. Zero for one that was passed: its caller may come at any release.
    pub(super) fn ahead_of(&self, ticket: u64) -> u32 {
        let given = ticket.saturating_sub(self.served.unwrap_or(0)).saturating_sub(1);
        let left = self.left().range(..ticket).count() as u64;
        u32::try_from(given.saturating_sub(left)).unwrap_or(u32::MAX)
    }

    /// What the row is to list once this ticket is given up too. `None` where there is no room for it.
    pub(super) fn left_with(&self, ticket: u64) -> Option<String> {
        let mut left = self.left();
        left.insert(ticket);
        (left.len() <= MAX_LEFT).then(|| listed(left))
    }

    /// What the row is to list once this ticket is served, where it has a list.
    pub(super) fn left_behind(&self, ticket: u64) -> Option<String> {
        self.left.as_ref().map(|_| listed(self.left().split_off(&ticket.saturating_add(1))))
    }

    /// The tickets of those who have given up and were not passed.
    fn left(&self) -> BTreeSet<u64> {
        let listed = self.left.as_deref().unwrap_or_default().split(' ');
        listed.filter_map(|ticket| ticket.parse().ok()).filter(|ticket| self.has(*ticket)).take(MAX_LEFT).collect()
    }
}

fn listed(tickets: BTreeSet<u64>) -> String {
    tickets.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_that_was_passed_has_nobody_ahead() {
        let line = |last, served, sleeper| Line { last, served, sleeper, left: None };
        let some = line(9, Some(4), None);
        assert_eq!([3, 4, 5, 6, 9].map(|ticket| some.ahead_of(ticket)), [0, 0, 0, 1, 4]);
        assert_eq!((some.waiting(), line(9, Some(9), Some(9)).is_open()), (5, false));
        assert!(line(0, None, None).is_open(), "a Claim is refused where a counter is missing");
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
            let line = Line { last, served, sleeper, left: None };
            assert_eq!(line.to_wake(), to_wake, "{line:?}");
        }
    }

    #[test]
    fn who_has_given_up_is_not_waited_for_whatever_else_the_row_lists() {
        let line = |left: &str| Line { last: 9, served: Some(4), sleeper: None, left: Some(left.to_owned()) };
        for (left, waiting, ahead_of_the_last) in [
            ("6 8", 3, 2),
            ("9", 4, 4),
            ("5 6 7 8 9", 0, 0),
            // Served, never given, twice, or no tickets.
            ("3 4 10 99999999999999999999 6 6 -7 x  8,9", 4, 3),
            ("", 5, 4),
        ] {
            let line = line(left);
            assert_eq!((line.waiting(), line.ahead_of(9)), (waiting, ahead_of_the_last), "{left}");
            assert!(line.has_tickets());
        }
        assert_eq!(line("8 3 6 x").left_with(7).as_deref(), Some("6 7 8"));
        let behind = [5, 6, 8].map(|ticket| line("8 6").left_behind(ticket));
        assert_eq!(behind, ["6 8", "8", ""].map(|left| Some(left.to_owned())));
    }

    #[test]
    fn the_list_of_those_who_have_given_up_has_an_end() {
        let left = (1..=100).map(|ticket: u64| ticket.to_string()).collect::<Vec<_>>().join(" ");
        let line = Line { last: 200, served: Some(0), sleeper: None, left: Some(left.clone()) };
        assert_eq!([line.left_with(150), line.left_with(100)], [None, Some(left.clone())]);
        let longer = Line { left: Some(format!("{left} 101 102")), ..line };
        assert_eq!((longer.waiting(), longer.left_with(103)), (100, None));
    }
}
