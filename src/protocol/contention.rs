//! How many wait for the same lock, as far as one waiter can tell: so that many of them together do not
//! ask many times as often as one would.
//!
//! A row says who holds the lock, not who waits for it. But whoever waits among many keeps finding
//! somebody new, and takes it that as many wait as it has found holders. It lets that many times as long
//! pass between its looks as one that is alone: one and a half turns, at least 30 ms and at most 250 ms,
//! for each of them, and never more than 2 s. Together they then look about as often as one. How long a
//! turn lasts follows from the fencing tokens, which grow by one with each grant.
//!
//! Whether those that were found still wait, nobody can see. Once one of them was found again with a later
//! grant, holders come back, and all of them count. As long as none was, they may have come for a single
//! turn each, as many callers do that one event starts together: then most of them are gone, half of them
//! count, and the pauses begin with the fourth. (Counting all of them left the lock idle for a third of a
//! turn at the end of such a burst, because the last ones held back for those that had been served.)
//!
//! A holder that comes back again and again is one holder, so whoever is left alone with it does not
//! hold back for a crowd that is not there. Only rows of this crate count: other clients look once a
//! second, however many of ours hold back.

use super::backoff::{LONGEST_POLL, SHORTEST_POLL};
use super::instants::Instants;
use super::record::Record;
use std::time::Duration;

/// No pause is longer, however large the crowd: a waiter that was left alone must notice.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// More need not be told apart: the pause has its largest length by then.
const MOST_HOLDERS: usize = 64;

/// What one waiter has found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contention {
    /// By name, with the token of the grant by which each was found first.
    holders: Vec<(String, u64)>,
    /// One of them was found again with another grant.
    come_back: bool,
    /// The first token that was seen, and when.
    first: Option<(u64, Instants)>,
    turn: Option<Duration>,
}

impl Contention {
    /// A look at the row showed this.
    pub(crate) fn see(&mut self, record: &Record, now: Instants) {
        let Some(token) = record.token.filter(|_| record.is_ours()) else { return };
        let holder = client_of(&record.owner);
        match self.holders.iter().find(|(name, _)| name == holder) {
            Some((_, found_with)) => self.come_back |= *found_with != token,
            None if self.holders.len() < MOST_HOLDERS => self.holders.push((holder.to_owned(), token)),
            None => {}
        }
        let (first, since) = *self.first.get_or_insert((token, now));
        let turns = u32::try_from(token.saturating_sub(first)).unwrap_or(u32::MAX);
        if turns > 0 {
            self.turn = Some(now.shortest_since(since) / turns);
        }
    }

    /// How long to pause at least; zero where nobody else waits as far as is known.
    pub(crate) fn pause(&self) -> Duration {
        let found = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        // Twice the waiters, so that half of an odd number counts too.
        let halves = if self.come_back { found * 2 } else { found };
        if halves < 4 {
            return Duration::ZERO;
        }
        let alone = (self.turn.unwrap_or_default() * 3 / 2).clamp(SHORTEST_POLL, LONGEST_POLL);
        (alone * halves / 2).min(LONGEST_PAUSE)
    }
}

/// Who comes back: an owner that was not named by the caller is another one for each acquire, with the same name of
/// a client in front.
fn client_of(owner: &str) -> &str {
    match owner.rsplit_once('/') {
        Some((client, digits)) if digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => client,
        _ => owner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Item, Schema, Value};

    const TURN: Duration = Duration::from_millis(80);

    fn at(millis: u64) -> Instants {
        Instants { monotonic: Duration::from_millis(millis), wall: Duration::from_millis(millis) }
    }

    fn row(version: &str, owner: &str, token: u64) -> Record {
        let item: Item = [
            ("key", Value::S("k".to_owned())),
            ("ownerName", Value::S(owner.to_owned())),
            ("leaseDuration", Value::S("20000".to_owned())),
            ("recordVersionNumber", Value::S(version.to_owned())),
            ("fencingToken", Value::N(token.to_string())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect();
        Record::read(item, &Schema::default()).unwrap()
    }

    fn ours(owner: &str, token: u64) -> Record {
        row("ll1-0123456789abcdef0123456789abcdef-0199d6a4c80012ef", owner, token)
    }

    /// What a waiter that looks every ten turns pauses, when it finds these holders.
    fn pauses_behind(holders: &[&str]) -> Vec<Duration> {
        let mut contention = Contention::default();
        let pause = |(look, holder): (u64, &&str)| {
            contention.see(&ours(holder, 100 + 10 * look), at(10 * 80 * look));
            contention.pause()
        };
        (0..).zip(holders).map(pause).collect()
    }

    #[test]
    fn a_waiter_among_many_holds_back_for_each_holder_that_it_finds() {
        let expected = [0, 2, 2, 3, 4].map(|waiters| TURN * 3 / 2 * waiters);
        let pauses = pauses_behind(&["a", "b", "a", "c", "d"]);
        assert_eq!(pauses[0], expected[0]);
        assert_eq!(pauses[2..], expected[2..]);
    }

    #[test]
    fn a_waiter_holds_back_for_half_of_the_holders_that_never_came_back() {
        let expected = [0, 0, 0, 4, 5, 6].map(|halves| TURN * 3 / 2 * halves / 2);
        assert_eq!(pauses_behind(&["a", "b", "c", "d", "e", "f"]), expected);
    }

    #[test]
    fn a_holder_that_comes_back_is_no_crowd() {
        let mut contention = Contention::default();
        for turn in 0..100 {
            contention.see(&ours("the same", 100 + turn), at(40 * turn));
        }
        assert_eq!(contention.pause(), Duration::ZERO);
    }

    #[test]
    fn a_holder_that_comes_back_under_the_names_of_its_calls_is_no_crowd() {
        let mut contention = Contention::default();
        for turn in 0..100 {
            contention.see(&ours(&format!("orders/{turn:08x}"), 100 + turn), at(40 * turn));
        }
        assert_eq!(contention.pause(), Duration::ZERO);
    }

    #[test]
    fn other_clients_holders_are_no_crowd() {
        let mut contention = Contention::default();
        for turn in 0..100 {
            contention.see(&row("b2c6a6e2", &format!("java {turn}"), 100 + turn), at(40 * turn));
        }
        assert_eq!(contention.pause(), Duration::ZERO);
    }

    #[test]
    fn no_crowd_is_so_large_and_no_turn_so_long_that_a_waiter_sleeps_for_more_than_two_seconds() {
        let mut contention = Contention::default();
        for holder in 0..100 {
            contention.see(&ours(&format!("holder {holder}"), 100 + holder), at(60_000 * holder));
        }
        assert_eq!(contention.pause(), LONGEST_PAUSE);
        // A token that was turned back, by a peer or with its row, is no turn.
        contention.see(&ours("another", 3), at(9_000_000));
        assert_eq!(contention.pause(), LONGEST_PAUSE);
    }
}
