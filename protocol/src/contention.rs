//! Estimates how many contenders wait for the same lock, as far as one of them can tell. With this estimate, many
//! contenders together read the row about as often as a single one would.
//!
//! A row names the holder of the lock, not its contenders. But a contender among many keeps finding new holders, and
//! assumes that as many wait as it has found. It pauses that many times as long between its reads as a single
//! contender would: for each of them one and a half turns, at least 30 ms and at most 250 ms, and never more than 2 s
//! in all. Together they then read about as often as one. The length of a turn follows from the fencing tokens, which
//! grow by one with each grant, and from the ages of the grants, where the caller knows them.
//!
//! A contender cannot see whether the holders that it found still wait. Once it finds one of them again with a later
//! grant, it assumes that holders come back, and counts all of them. Until then they may have come for a single turn
//! each, as when one event starts many callers. Most of them are gone then, so it counts half of them, and pauses
//! from the fourth one on. (When it counted all of them, the lock was idle for a third of a turn at the end of such a
//! burst. The last contenders waited for holders that had already finished.)
//!
//! A holder that comes back again and again counts as one, so a contender that is alone with it does not wait for
//! others that are not there. Only rows of this crate count. Other clients read once a second, however long ours
//! pause.

use super::backoff::{MAX_POLL, MIN_POLL};
use super::instants::Instants;
use super::record::Record;
use std::time::Duration;

/// The longest pause, however many contenders there are. A contender that was left alone must notice that.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Tokens that grow faster than this do not count turns.
const MIN_TURN: Duration = Duration::from_millis(10);
/// The most holders that are told apart. With so many, the pause has its largest length.
const MAX_HOLDERS: usize = 64;

/// What one contender has found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contention {
    /// The name of each holder, with the token of the first grant that was seen.
    holders: Vec<(String, u64)>,
    /// A holder was found again with another grant.
    come_back: bool,
    /// The first token that was seen, when, and how old its grant was then.
    first: Option<(u64, Instants, Duration)>,
    turn: Option<Duration>,
}

impl Contention {
    /// Records what a read of the row showed. `age` is for how long the holder has held the lock, as far as the caller knows.
    pub(crate) fn see(&mut self, record: &Record, now: Instants, age: Duration) {
        let Some(token) = record.token.filter(|_| record.is_ours()) else { return };
        let holder = client_of(&record.owner);
        match self.holders.iter().find(|(name, _)| name == holder) {
            Some((_, found_with)) => self.come_back |= *found_with != token,
            None if self.holders.len() < MAX_HOLDERS => self.holders.push((holder.to_owned(), token)),
            None => {}
        }
        // After a release the next turn may begin at once. How long a dead holder held the lock tells nothing.
        let is_over = record.released || age > record.lease.duration();
        let (token, age) = (token.saturating_add(record.released.into()), if is_over { Duration::ZERO } else { age });
        let (first, since, first_age) = *self.first.get_or_insert((token, now, age));
        let passed = now.shortest_since(since).saturating_add(first_age).saturating_sub(age);
        let grants = u128::from(token.saturating_sub(first));
        // Locks that are acquired together take a token near the clock, which skips many.
        let turns = if grants > passed.as_millis() / MIN_TURN.as_millis() { grants.min(1) } else { grants };
        if let Some(turns) = u32::try_from(turns).ok().filter(|turns| *turns > 0) {
            self.turn = Some(passed / turns);
        }
    }

    /// How long the turns took that were seen.
    pub(crate) fn turn(&self) -> Option<Duration> {
        self.turn
    }

    /// The shortest pause before the next read. Zero when no other contender is known.
    pub(crate) fn pause(&self) -> Duration {
        let found = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        // Counts in halves, so that half of an odd number counts too.
        let halves = if self.come_back { found * 2 } else { found };
        if halves < 4 {
            return Duration::ZERO;
        }
        let alone = (self.turn.unwrap_or_default() * 3 / 2).clamp(MIN_POLL, MAX_POLL);
        (alone * halves / 2).min(MAX_PAUSE)
    }
}

/// The part of an owner's name that stays the same. An owner that the caller did not name has a new suffix for each
/// acquire, after the name of the client.
fn client_of(owner: &str) -> &str {
    match owner.rsplit_once('/') {
        Some((client, digits)) if digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => client,
        _ => owner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, Schema, Value};

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
        row("ll1-0123456789abcdef0123456789abcdef-0199d6a4c8000123456789abcdef", owner, token)
    }

    /// The pauses of a contender that reads every ten turns and finds these holders.
    fn pauses_behind(holders: &[&str]) -> Vec<Duration> {
        let mut contention = Contention::default();
        let pause = |(look, holder): (u64, &&str)| {
            contention.see(&ours(holder, 100 + 10 * look), at(10 * 80 * look), Duration::ZERO);
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
            contention.see(&ours("the same", 100 + turn), at(40 * turn), Duration::ZERO);
        }
        assert_eq!(contention.pause(), Duration::ZERO);
    }

    #[test]
    fn a_holder_that_comes_back_under_the_names_of_its_calls_is_no_crowd() {
        let mut contention = Contention::default();
        for turn in 0..100 {
            contention.see(&ours(&format!("orders/{turn:08x}"), 100 + turn), at(40 * turn), Duration::ZERO);
        }
        assert_eq!(contention.pause(), Duration::ZERO);
    }

    #[test]
    fn a_token_that_jumps_to_the_clock_is_one_turn_and_not_many_short_ones() {
        for jump in [200, 1_760_000_000_000] {
            let mut contention = Contention::default();
            for (look, holder) in (0..).zip(["a", "b", "c", "d"]) {
                contention.see(&ours(holder, 100 + look * jump), at(800 * look), Duration::ZERO);
            }
            assert_eq!(contention.pause(), MAX_POLL * 2, "{jump}");
        }
    }

    #[test]
    fn a_turn_lasts_from_one_grant_to_the_next_whenever_the_looks_come() {
        let mut contention = Contention::default();
        // The grants come every 400 ms.
        for (token, look) in [(100, 100), (101, 750), (104, 1_610)] {
            let grant = (token - 100) * 400;
            contention.see(&ours("a", token), at(look), Duration::from_millis(look - grant));
            let expected = (token > 100).then_some(Duration::from_millis(400));
            assert_eq!(contention.turn(), expected, "{token}");
        }
    }

    #[test]
    fn a_turn_ends_with_its_release_and_a_dead_holder_begins_none() {
        let mut contention = Contention::default();
        contention.see(&ours("dead", 100), at(1_000), Duration::from_secs(60));
        let mut released = ours("b", 101);
        released.released = true;
        contention.see(&released, at(1_000 + 80 * 2), Duration::from_secs(1));
        assert_eq!(contention.turn(), Some(TURN));
        contention.see(&ours("c", 102), at(1_000 + 80 * 2 + 30), Duration::from_millis(30));
        assert_eq!(contention.turn(), Some(TURN));
    }

    #[test]
    fn other_clients_holders_are_no_crowd() {
        let mut contention = Contention::default();
        for turn in 0..100 {
            contention.see(&row("b2c6a6e2", &format!("java {turn}"), 100 + turn), at(40 * turn), Duration::ZERO);
        }
        assert_eq!(contention.pause(), Duration::ZERO);
    }

    #[test]
    fn no_crowd_is_so_large_and_no_turn_so_long_that_a_waiter_sleeps_for_more_than_two_seconds() {
        let mut contention = Contention::default();
        for holder in 0..100 {
            contention.see(&ours(&format!("holder {holder}"), 100 + holder), at(60_000 * holder), Duration::ZERO);
        }
        assert_eq!(contention.pause(), MAX_PAUSE);
        // A token that became smaller, because a peer or a deletion reset it, is not a turn.
        contention.see(&ours("another", 3), at(9_000_000), Duration::ZERO);
        assert_eq!(contention.pause(), MAX_PAUSE);
    }
}
