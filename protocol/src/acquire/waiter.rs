//! Waiting in line: callers behind a slow holder take tickets, and are granted the lock in the order of their tickets.
//!
//! Two counters stand in the row: the last ticket given and the last one served. The caller whose ticket follows the one
//! served last is the first in line. Nobody hands a lock over, so a grant is still made only by the caller who gets it.
//!
//! ```text
//! the caller                               the next look                                 a free lock
//! ───────────────────────────────────────  ────────────────────────────────────────────  ─────────────────────────────────
//! has no ticket                            as its backoff says                           is left to all in line first
//! has one, and others are ahead            after half of the time that they will need    is left to those ahead first
//! has one, and is first                    after a fifth of the time that it has been    is its own
//! has one that was passed                  the same                                      is its own
//! ```
//!
//! A free lock is left to those ahead for two seconds if one is ahead, and half a second longer for each further one. Who does not
//! come in that time is passed: it may have died. Who gives up says so, and is left out of the count.

use super::options::Queueing;
use crate::clock_bounds::ClockBounds;
use crate::instants::{Instants, millis_rounded_up};
use crate::line::{Line, Turns};
use crate::observation::{HolderWatch, Observation};
use crate::port::{Now, Port};
use crate::record::Record;
use crate::value::Item;
use crate::version::{Grant, Version};
use std::time::Duration;

/// For how long a free lock is left to those ahead, and [`GRACE_FOR_EACH`] longer: enough to wake one that sleeps, for the next step
/// of its workflow, and for a cold start.
const GRACE: Duration = Duration::from_millis(1_500);
/// So much longer for each of them. The time counts from a caller's first look at the free lock, and the next ones look at the latest
/// [`MAX_PAUSE_OF_NEXT`] and a round trip after each other. So a caller that looks is hardly ever passed.
const GRACE_FOR_EACH: Duration = Duration::from_millis(500);
/// Nobody leaves it for longer, however many are ahead.
const MAX_GRACE: Duration = Duration::from_millis(3_500);
/// A caller takes a ticket after this time, however short the turns are, and if it has so much left.
const PATIENCE: Duration = Duration::from_secs(1);
/// A turn of others counts as at least so long. So those far behind do not all look at once when they have just joined.
const MIN_TURN: Duration = Duration::from_millis(50);
const MIN_PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The same of the first in line, for whom nobody else looks.
const MAX_PAUSE_OF_FIRST: Duration = Duration::from_millis(250);
/// The same of the next ones, whose turn it is when those ahead do not come.
const MAX_PAUSE_OF_NEXT: Duration = Duration::from_millis(400);
/// How many the next ones are.
const NEXT: u32 = 3;

/// What a caller knows about the line of one lock, and about its own turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiter {
    ticket: Option<u64>,
    /// The ticket is from an earlier call. This one may be too short to see that others do not come.
    is_carried: bool,
    /// The first look.
    since: Option<Instants>,
    /// The newest grant that was seen, also by an earlier call.
    grant: Option<Grant>,
    turns: Turns,
    /// Two looks of this call in a row have shown the same grant: held, or over and left to those in line.
    is_slow: bool,
    /// The first look with this ticket, and how many were ahead then.
    joined: Option<(Instants, u32)>,
    /// The first look that showed nobody ahead.
    first_since: Option<Instants>,
}

impl Waiter {
    /// A waiter that goes on where an earlier call was refused.
    pub(super) fn after(earlier: &Observation) -> Self {
        let (ticket, turns) = (earlier.ticket(), earlier.turns().unwrap_or_default());
        let grant = Version::parse(earlier.version()).map(|version| version.grant);
        Self { ticket, is_carried: ticket.is_some(), grant, turns, ..Self::default() }
    }

    /// Records what a look has shown.
    pub(super) fn see(&mut self, record: &Record, after: Instants) {
        let grant = record.own_version.map(|version| version.grant);
        self.is_slow |= self.since.is_some() && grant.is_some() && grant == self.grant;
        self.since.get_or_insert(after);
        self.turns.see(record.believable_line().and_then(|line| line.served), grant != self.grant);
        self.grant = grant;
        if record.is_ours() && record.line.is_none() {
            self.line_is_over();
        }
        // The counters began again, so a ticket from before means nothing. Under a peer's version it is kept.
        let is_void = |ticket: &u64| record.line.as_ref().is_none_or(|line| line.last < *ticket);
        if record.is_ours() && self.ticket.as_ref().is_some_and(is_void) {
            self.forget();
        }
        let Some((line, ticket)) = record.believable_line().zip(self.ticket) else { return };
        // Nobody wakes a caller for a ticket that was passed. It takes another one, unless it finds the lock free now.
        let is_free = record.released && record.freeze_reason.is_none() && record.is_ours();
        if self.is_carried && !is_free && line.served >= Some(ticket) {
            return self.forget();
        }
        let ahead = line.ahead_of(ticket);
        self.joined.get_or_insert((after, ahead));
        if ahead == 0 {
            self.first_since.get_or_insert(after);
        }
    }

    /// The lock is left to those ahead.
    pub(super) fn leaves_it(&mut self) {
        self.turns.leave();
    }

    /// Reads the ticket that this caller was given, from the row as it was written.
    pub(super) fn joined(&mut self, row: &Item) {
        self.ticket = Line::of_row(row).map(|line| line.last);
    }

    /// The ticket means nothing any more: the row is gone, and the line with it, or the caller was passed, or has given up.
    pub(super) fn forget(&mut self) {
        *self = Self { ticket: None, is_carried: false, joined: None, first_since: None, ..*self };
    }

    /// There is no line any more, nor was there one for what was lost.
    pub(super) fn line_is_over(&mut self) {
        self.forget();
        self.turns = Turns::default();
    }

    pub(super) fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// An observation with all that the next call needs to go on.
    pub(super) fn hands_over(&self, observation: Observation) -> Observation {
        observation.with_ticket(self.ticket).with_turns(self.turns.for_next_call())
    }

    /// The ticket that a grant serves. `None` without one, and with one that was passed.
    pub(super) fn ticket_to_serve(&self, line: &Line) -> Option<u64> {
        self.ticket.filter(|ticket| line.served.is_none_or(|served| *ticket > served))
    }

    /// Whether the caller leaves a free lock to others first.
    pub(super) fn lets_others_go_first(&self, record: &Record) -> bool {
        !self.grace(record).is_zero()
    }

    /// How much longer a lock must be free, or its holder dead, until this caller may take it. That counts from the first look of
    /// this caller which showed it so, and from its ticket at the earliest: who took the ticket before may have looked later. Whoever
    /// is not in line may take the lock meanwhile, again and again: each time counts as much as one of those ahead.
    pub(super) fn turn_in(&self, now: &Now, watch: &HolderWatch, bounds: &ClockBounds) -> Duration {
        let record = watch.record();
        let own_turn = |free_for: Duration| {
            bounds.stretched(self.grace(record)).saturating_sub(free_for.saturating_add(self.lost()))
        };
        let free_for = watch.takeable_for(now, bounds);
        match self.joined {
            Some((joined, _)) if !self.is_carried => own_turn(free_for.min(now.instants.monotonic_since(joined))),
            // It may ask only once.
            _ => own_turn(free_for).min(self.deserted_in(now, record, bounds).unwrap_or(Duration::MAX)),
        }
    }

    /// How long until this caller may take a lock although it looks only once, because it is deserted: nobody in line has come
    /// for it since it was released, its lease was over or it was thawed, whatever the clocks say. `None` where the row does not
    /// tell.
    pub(super) fn deserted_in(&self, now: &Now, record: &Record, bounds: &ClockBounds) -> Option<Duration> {
        let skew = bounds.allowed_skew();
        let since = now.wall.millis.saturating_sub(millis_rounded_up(skew.saturating_add(MAX_GRACE)));
        let free_from = record.believable_end()?.max(record.freeze_changed_at.unwrap_or(0));
        let left = Duration::from_millis(free_from.saturating_add(1).saturating_sub(since));
        // Clocks differ by the skew at most, so a longer time is that of a wrong clock. It is not waited for: whoever asks again then
        // may have seen for long enough that nobody comes.
        Some(left.min(skew.saturating_mul(2).saturating_add(MAX_GRACE)).saturating_sub(self.lost()))
    }

    /// By how much less this caller leaves the lock to those ahead, because others have taken it meanwhile.
    fn lost(&self) -> Duration {
        GRACE_FOR_EACH.saturating_mul(self.turns.lost)
    }

    /// How long this caller leaves a free lock to those ahead.
    fn grace(&self, record: &Record) -> Duration {
        let Some(line) = record.believable_line() else { return Duration::ZERO };
        let ahead = match self.ticket {
            Some(ticket) => line.ahead_of(ticket),
            None => u32::try_from(line.waiting()).unwrap_or(u32::MAX),
        };
        if ahead == 0 { Duration::ZERO } else { (GRACE + GRACE_FOR_EACH.saturating_mul(ahead)).min(MAX_GRACE) }
    }

    /// Whether to take a ticket. It is given behind a holder, and where others wait already.
    pub(super) fn joins(&self, queueing: Queueing, now: &Now, record: &Record) -> bool {
        let is_given = !record.released
            || record.believable_line().is_some_and(|line| line.served.is_some_and(|served| served < line.last));
        // The largest ticket could not be read.
        let is_last = record.line.as_ref().is_some_and(|line| line.last >= u64::MAX - 1);
        if self.ticket.is_some() || !record.is_ours() || !is_given || is_last {
            return false;
        }
        match queueing {
            Queueing::Ignored => false,
            Queueing::BetweenCalls => true,
            Queueing::AtOnce => now.wait_left >= PATIENCE,
            Queueing::BehindSlowHolders => {
                let waited = self.since.map_or(Duration::ZERO, |since| now.instants.longest_since(since));
                now.wait_left >= PATIENCE && (self.is_slow || waited >= PATIENCE)
            }
        }
    }

    /// In line: how long to wait before the next look. `None` without a ticket.
    pub(super) fn pause(&self, port: &mut impl Port, now: &Now, record: &Record) -> Option<Duration> {
        let ahead = record.believable_line()?.ahead_of(self.ticket?);
        // Without a token nobody can tell a new holder from the one before.
        if record.freeze_reason.is_some() || record.token.is_none() {
            return None;
        }
        let nominal = if ahead == 0 {
            let first_for = now.instants.longest_since(self.first_since?);
            (first_for / 5).clamp(MIN_PAUSE, MAX_PAUSE_OF_FIRST)
        } else {
            let (joined, ahead_then) = self.joined?;
            let turns = ahead_then.saturating_sub(ahead).max(1);
            let turn = (now.instants.longest_since(joined) / turns).max(MIN_TURN);
            let longest = if ahead <= NEXT { MAX_PAUSE_OF_NEXT } else { MAX_PAUSE };
            (turn.saturating_mul(ahead) / 2).clamp(MIN_PAUSE, longest)
        };
        Some(nominal - nominal.mul_f64(port.random_fraction() / 20.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::WallClock;
    use crate::schema::Schema;
    use crate::value::Value;

    /// A row that does not tell when the lock was granted.
    fn held() -> Record {
        let item: Item = [
            ("key", Value::S("k".to_owned())),
            ("ownerName", Value::S("a".to_owned())),
            ("leaseDuration", Value::S("20000".to_owned())),
            (
                "recordVersionNumber",
                Value::S("ll1-0123456789abcdef0123456789abcdef-0199d6a4c8000123456789abcdef".to_owned()),
            ),
            ("fencingToken", Value::N("7".to_owned())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect();
        Record::read(item, &Schema::default()).unwrap()
    }

    #[test]
    fn a_released_lock_is_anybodys_soon_whatever_the_clock_of_its_last_holder_says() {
        let now = Now { wall: WallClock { millis: 1_000_000, ..WallClock::default() }, ..Now::default() };
        let waiter = Waiter::default();
        let left = |ends_at_ms| waiter.deserted_in(&now, &Record { ends_at_ms, ..held() }, &ClockBounds::default());
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!([left(None), left(Some(u64::MAX)), left(Some(9_000_000))], [None, millis(7_500), millis(7_500)]);
        assert_eq!([left(Some(999_999)), left(Some(500_000))], [millis(5_500), Some(Duration::ZERO)]);
    }
}
