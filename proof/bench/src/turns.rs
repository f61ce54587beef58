//! What the turns of some callers at one lock show: how long hand-overs take, and how often a caller is passed.

use crate::statistics::quantile;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Callers that came closer to each other than this may change places.
const SAME_TIME: Duration = Duration::from_millis(20);

/// A turn of a caller, by one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) came: Duration,
    pub(crate) granted: Duration,
    pub(crate) released: Duration,
    pub(crate) ticket: Option<Ticket>,
}

/// The place of a caller in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) number: u64,
    pub(crate) given: Duration,
}

/// Milliseconds from a release to the next grant, while somebody waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HandOver {
    pub(crate) median: f64,
    pub(crate) most: f64,
}

/// The hand-overs between these turns, in the order of the grants.
pub(crate) fn hand_overs(turns: &mut [Turn]) -> Vec<Duration> {
    turns.sort_by_key(|turn| turn.granted);
    let waited = turns.windows(2).filter(|two| two[1].came < two[0].released);
    waited.map(|two| two[1].granted.saturating_sub(two[0].released)).collect()
}

/// How often the caller that was passed most often was passed by those who came later.
pub(crate) fn most_passed(turns: &mut [Turn]) -> usize {
    turns.sort_by_key(|turn| turn.granted);
    let passed = |(index, turn): (usize, &Turn)| {
        turns[..index].iter().filter(|other| other.came > turn.came + SAME_TIME).count()
    };
    turns.iter().enumerate().map(passed).max().unwrap_or_default()
}

/// How many callers in line were passed, from when each has its ticket: by larger tickets, or by callers without one who came
/// after that.
pub(crate) fn passed_in_line(turns: &mut [Turn]) -> usize {
    turns.sort_by_key(|turn| turn.granted);
    let is_passed = |(index, turn): &(usize, &Turn)| {
        let Some(own) = turn.ticket else { return false };
        let passes = |other: &Turn| other.ticket.map_or(other.came > own.given, |ticket| ticket.number > own.number);
        turns[..*index].iter().any(passes)
    };
    turns.iter().enumerate().filter(is_passed).count()
}

impl HandOver {
    /// The median, and what 99 of a hundred do not exceed.
    pub(crate) fn of(hand_overs: &[Duration]) -> Self {
        let mut millis: Vec<f64> = hand_overs.iter().map(|one| one.as_secs_f64() * 1e3).collect();
        millis.sort_by(f64::total_cmp);
        if millis.is_empty() {
            return Self::default();
        }
        Self { median: quantile(&millis, 0.5), most: quantile(&millis, 0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(of: &[(u64, u64, u64)]) -> Vec<Turn> {
        let millis = Duration::from_millis;
        let turn = |(came, granted, released): &(u64, u64, u64)| Turn {
            came: millis(*came),
            granted: millis(*granted),
            released: millis(*released),
            ticket: None,
        };
        of.iter().map(turn).collect()
    }

    #[test]
    fn a_hand_over_is_from_a_release_to_a_caller_that_waited() {
        let mut turns = turns(&[(30, 45, 60), (0, 10, 20), (15, 25, 40), (100, 101, 110)]);
        assert_eq!(hand_overs(&mut turns), [5, 5].map(Duration::from_millis));
        assert_eq!(HandOver::of(&[]), HandOver::default());
    }

    #[test]
    fn a_caller_is_passed_by_those_who_came_clearly_later_and_were_served_before() {
        for (of, passed) in [
            (&[(0, 10, 20), (5, 30, 40), (40, 50, 60)][..], 0),
            (&[(0, 10, 20), (5, 50, 60), (30, 30, 40), (35, 40, 50)], 2),
            (&[(0, 30, 40), (20, 20, 30)], 0),
            (&[(0, 30, 40), (21, 21, 30)], 1),
        ] {
            assert_eq!(most_passed(&mut turns(of)), passed, "{of:?}");
        }
    }

    #[test]
    fn a_caller_in_line_is_passed_by_larger_tickets_and_by_those_who_come_later_without_one() {
        // Each comes, is granted the lock and releases it, with its ticket and when that was given.
        for (of, passed) in [
            (&[(0, 10, 20, None), (5, 30, 40, None)][..], 0),
            (&[(0, 10, 20, None), (5, 30, 40, Some((1, 8))), (6, 40, 50, Some((2, 9)))], 0),
            (&[(5, 40, 50, Some((1, 8))), (6, 30, 40, Some((2, 9)))], 1),
            (&[(5, 40, 50, Some((1, 8))), (9, 30, 40, None), (8, 20, 30, None), (41, 50, 60, None)], 1),
        ] {
            let turn = |&(came, granted, released, ticket): &(u64, u64, u64, Option<(u64, u64)>)| Turn {
                ticket: ticket.map(|(number, given)| Ticket { number, given: Duration::from_millis(given) }),
                ..turns(&[(came, granted, released)])[0]
            };
            assert_eq!(passed_in_line(&mut of.iter().map(turn).collect::<Vec<_>>()), passed, "{of:?}");
        }
    }
}
