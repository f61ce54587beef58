//! Waiting in line: callers behind a slow holder take tickets, and are granted the lock in the order of their tickets.
//!
//! Two counters stand in the row: the last ticket given and the last one served. The line is open while the first one
//! is larger. The caller whose ticket follows the one served last is the first in line. The others look seldom, and
//! leave a free lock to those ahead of them for a while. Whoever does not come in that time is passed: it may have given
//! up or died. Nobody hands a lock over, so a grant is still made only by the caller who gets it.
//!
//! Two more numbers, for how long holders usually hold the lock and by how much that varies, tell those in line when to
//! look. They also decide whether a ticket is worth its request, and for how long a free lock is left to those ahead. Without
//! them the waiters go by the time that the turns took which they have seen.

use super::options::Queueing;
use crate::clock_bounds::{ClockBounds, DEFAULT_SKEW};
use crate::instants::{Instants, millis_rounded_up};
use crate::lease::MAX_LEASE;
use crate::line::{HoldTimes, Line};
use crate::observation::HolderWatch;
use crate::port::{Now, Port};
use crate::record::Record;
use crate::value::Item;
use std::time::Duration;

/// After this time a free lock is anybody's, whoever was in line for it. Nobody ahead is left longer than that.
const DESERTED: Duration = Duration::from_secs(2);
/// A caller takes a ticket after this time, however short the turns are.
const PATIENCE: Duration = Duration::from_secs(1);
/// A holder is slow when it has held the lock for this long, or is expected to hold it for twice as long from now on.
const SLOW: Duration = Duration::from_millis(25);
/// The pauses between two looks of the first in line at a holder that should be done.
const GAPS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(250));
/// Where nothing is known of the turns, the pauses are not shorter than this, for each of those ahead and oneself.
const UNKNOWN: Duration = Duration::from_millis(20);
/// The time for which each of those ahead is waited for: this, with two pauses and two requests of the first in line, as long as
/// they are when the holder has just become late.
const SLOT: Duration = Duration::from_millis(30);
const MAX_SLOT: Duration = Duration::from_millis(600);
/// While a caller that sleeps is in line, a free lock is left to those ahead for at least this time: enough to wake it, for the
/// next step of its workflow, and for a cold start.
const SLEEPERS_SLOT: Duration = Duration::from_millis(1_500);
/// How many of those behind the first one look after each turn.
const NEXT_ONES: u32 = 3;
/// How many looks at a late holder are Claims in turn.
const MAX_CLAIMS: u16 = 4;
/// The longest pause, unless the turns are long and regular.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A lock that was released before this epoch millisecond is deserted: nobody in line has come for it.
pub(super) fn deserted_before(now: &Now, bounds: &ClockBounds) -> u64 {
    let skew = bounds.max_clock_skew().unwrap_or(DEFAULT_SKEW);
    now.wall.millis.saturating_sub(millis_rounded_up(skew.saturating_add(DESERTED)))
}

/// How long until that is so. `None` where the row does not tell.
pub(super) fn deserted_in(now: &Now, record: &Record, bounds: &ClockBounds) -> Option<Duration> {
    let left = record.believable_end()?.saturating_add(1).saturating_sub(deserted_before(now, bounds));
    // Clocks differ by the skew at most. A longer time is that of a wrong clock, and nobody needs to wait for it.
    let longest = bounds.max_clock_skew().unwrap_or(DEFAULT_SKEW).saturating_mul(2).saturating_add(DESERTED);
    Some(Duration::from_millis(left).min(longest))
}

/// What a caller knows about the line of one lock, and about its own turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiter {
    ticket: Option<u64>,
    /// The ticket is from an earlier call. This one may be too short to see that others do not come.
    is_carried: bool,
    /// The first look.
    since: Option<Instants>,
    /// The token of the newest grant that was seen, and the first look that showed it.
    grant: Option<(u64, Instants)>,
    /// Two looks have shown the same holder.
    is_slow: bool,
    /// For how long holders hold the lock, by the row or else by the turns that were seen.
    times: Option<HoldTimes>,
    /// How long requests take, smoothed.
    round_trip: Duration,
    /// How many looks have found the present holder when it should have been done.
    late_looks: u16,
}

impl Waiter {
    /// A waiter with the ticket of an earlier call, if there is one.
    pub(super) fn with_ticket(ticket: Option<u64>) -> Self {
        Self { ticket, is_carried: ticket.is_some(), ..Self::default() }
    }

    /// Records how long a request took. One that was slow, such as the first one on its connection, says little about the next.
    pub(super) fn answered(&mut self, took: Duration) {
        let known = if self.round_trip.is_zero() { took } else { self.round_trip };
        self.round_trip = ((known * 3 + took.min(known * 4)) / 4).min(took * 2);
    }

    /// Records what a look has shown. `turn` is how long the turns took that were seen.
    pub(super) fn see(&mut self, record: &Record, after: Instants, turn: Option<Duration>) {
        self.since.get_or_insert(after);
        match (record.token, self.grant) {
            (Some(token), Some((seen, _))) if token == seen => self.is_slow |= !record.released,
            (Some(token), _) => {
                self.grant = Some((token, after));
                self.late_looks = 0;
            }
            (None, _) => {}
        }
        self.times = record.believable_hold_times().or_else(|| {
            // The turns seem longer than the holds: while nothing was known, the first in line came late, and whoever renews
            // its lease looks younger.
            let mean = turn?.saturating_sub(self.round_trip) * 3 / 4;
            Some(HoldTimes { mean, spread: mean / 4 })
        });
        // The counters began again, so a ticket from before means nothing. Under a peer's version it is kept.
        let is_void = |ticket: &u64| record.line.is_none_or(|line| line.last < *ticket);
        if record.is_ours() && self.ticket.as_ref().is_some_and(is_void) {
            self.ticket = None;
        }
        // Nobody wakes a caller for a ticket that was passed. It takes another one, unless it finds the lock free now.
        let is_free = record.released && record.freeze_reason.is_none();
        let served = record.believable_line().and_then(|line| line.served);
        if self.is_carried && !is_free && self.ticket.is_some() && served >= self.ticket {
            (self.ticket, self.is_carried) = (None, false);
        }
    }

    /// Reads the ticket that this caller was given, from the row as it was written.
    pub(super) fn joined(&mut self, row: &Item) {
        self.ticket = Line::of_row(row).map(|line| line.last);
    }

    /// The row is gone, and the line with it.
    pub(super) fn forget(&mut self) {
        self.ticket = None;
    }

    pub(super) fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// The ticket that a grant serves. `None` without one, and with one that was passed.
    pub(super) fn ticket_to_serve(&self, record: &Record) -> Option<u64> {
        let line = record.believable_line()?;
        self.ticket.filter(|ticket| line.served.is_none_or(|served| *ticket > served))
    }

    /// Whether the caller leaves a free lock to others first.
    pub(super) fn lets_others_go_first(&self, record: &Record) -> bool {
        !self.allowance(record).is_zero()
    }

    /// How much longer a lock must be free, or its holder dead, until this caller may take it. That counts from the first look of
    /// this caller which showed it free.
    pub(super) fn turn_in(&self, now: &Now, watch: &HolderWatch, bounds: &ClockBounds) -> Duration {
        let record = watch.record();
        if (self.ticket.is_none() || self.is_carried)
            && record.released
            && deserted_in(now, record, bounds) == Some(Duration::ZERO)
        {
            return Duration::ZERO;
        }
        bounds.stretched(self.allowance(watch.record())).saturating_sub(watch.takeable_for(now, bounds))
    }

    /// How long this caller leaves a free lock to others.
    fn allowance(&self, record: &Record) -> Duration {
        let Some(line) = record.believable_line() else { return Duration::ZERO };
        match self.ticket {
            Some(ticket) => {
                let ahead = line.ahead_of(ticket);
                let least = if ahead > 0 && line.has_sleeper() { SLEEPERS_SLOT } else { Duration::ZERO };
                self.slot(record).saturating_mul(ahead).max(least).min(DESERTED)
            }
            None if line.is_open() => DESERTED,
            None => Duration::ZERO,
        }
    }

    /// Whether to take a ticket. It is given behind a holder, and where others wait already.
    pub(super) fn joins(&self, queueing: Queueing, now: &Now, record: &Record) -> bool {
        let waits = |line: Line| line.served.is_some_and(|served| line.last > served);
        let is_given = !record.released || record.believable_line().is_some_and(waits);
        // The largest ticket could not be read. And nobody comes for a ticket after so short a wait.
        let is_last = record.line.is_some_and(|line| line.last >= u64::MAX - 1);
        let is_hopeless = queueing != Queueing::BetweenCalls
            && (now.wait_left < SLOW || now.wait_left < self.turn_expected_in(now, record));
        if self.ticket.is_some() || !record.is_ours() || !is_given || is_last || is_hopeless {
            return false;
        }
        match queueing {
            Queueing::Ignored => false,
            Queueing::AtOnce | Queueing::BetweenCalls => true,
            Queueing::BehindSlowHolders => {
                let waited = self.since.map_or(Duration::ZERO, |since| now.instants.longest_since(since));
                waited >= PATIENCE || self.is_slow || !record.released && self.is_behind_slow_holder(now, record)
            }
        }
    }

    /// How long the holder, and those who wait already, will probably take. Whoever gives up before that would leave a ticket
    /// that nobody comes for, and a lock that stands idle.
    fn turn_expected_in(&self, now: &Now, record: &Record) -> Duration {
        let Some(HoldTimes { mean, .. }) = self.times else { return Duration::ZERO };
        let waiting = record.believable_line().map_or(0, |line| line.waiting());
        let ahead = mean.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
        let present = if record.released { Duration::ZERO } else { mean.saturating_sub(self.age(now, record)) };
        ahead.saturating_add(present)
    }

    fn is_behind_slow_holder(&self, now: &Now, record: &Record) -> bool {
        let age = self.age(now, record);
        age >= SLOW || record.believable_hold_times().is_some_and(|times| times.mean >= age + SLOW * 2)
    }

    /// In line: how long to wait before the next look. `None` without a ticket.
    pub(super) fn pause(&mut self, port: &mut impl Port, now: &Now, record: &Record) -> Option<Duration> {
        let ahead = record.believable_line()?.ahead_of(self.ticket?);
        // Without a token nobody can tell a new holder from the one before.
        if record.freeze_reason.is_some() || record.token.is_none() {
            return None;
        }
        let nominal = match ahead {
            0 => return Some(self.pause_of_first(self.age(now, record))),
            // The next one ahead is about to be granted the lock.
            _ if record.released => self.pause_behind(record, ahead - 1, Duration::ZERO),
            _ => self.pause_behind(record, ahead, self.age(now, record)),
        };
        Some(nominal - nominal.mul_f64(port.random_fraction() / 20.0))
    }

    /// The first in line looks when the holder should be done, also before that where the times vary, and then more and more
    /// seldom.
    fn pause_of_first(&mut self, age: Duration) -> Duration {
        // What the next one in line takes for a turn is too long by as much as this pause, so it is short.
        let Some(times) = self.times else { return age.clamp(UNKNOWN, (age / 4).clamp(GAPS.1 / 2, GAPS.1)) };
        let early = if times.are_regular() { Duration::ZERO } else { times.spread };
        // The time ends when the release is sent, and a look of that time could arrive before it. A slow response must not make this
        // look late.
        let due_in = times.mean.saturating_add(self.round_trip.min(SLOT)).saturating_sub(age);
        if !due_in.is_zero() {
            // This holder may be done much sooner than the others were, and those behind wait for two short pauses of the first one.
            let longest = if times.are_regular() { MAX_PAUSE.max(times.mean / 4) } else { GAPS.1 * 2 };
            return if due_in > early { (due_in - early).min(longest) } else { due_in.min(GAPS.1) };
        }
        let growth = 1.5_f64.powi(self.late_looks.min(20).into());
        self.late_looks = self.late_looks.saturating_add(1);
        self.gap().mul_f64(growth).min(GAPS.1)
    }

    /// The others look when it may be their turn soon.
    fn pause_behind(&self, record: &Record, ahead: u32, age: Duration) -> Duration {
        let places = ahead.saturating_add(1);
        let Some(times) = self.times else {
            // This turn is at least as long as it has been so far. Whoever expects more may come too late.
            let expected = age.max(UNKNOWN).saturating_mul(ahead);
            return expected.max(UNKNOWN.saturating_mul(places)).min(MAX_PAUSE);
        };
        let turn = times.mean.saturating_add(self.round_trip * 3 / 2);
        let present = if age > times.mean { (age - times.mean) / 2 } else { times.mean - age };
        let early = if times.spread > self.round_trip {
            times.spread.mul_f64(f64::from(places).sqrt())
        } else {
            Duration::ZERO
        };
        let longest = if times.are_regular() { MAX_PAUSE.max(turn.saturating_mul(4)) } else { MAX_PAUSE };
        let expected = turn.saturating_mul(ahead).saturating_add(present).saturating_sub(early);
        // The next ones look whether those ahead have come. Otherwise nobody would notice that the first one is gone.
        let slots = self.slot(record).saturating_mul(ahead);
        let expected = if ahead <= NEXT_ONES { expected.min(present.saturating_add(slots)) } else { expected };
        expected.max(self.gap().saturating_mul(places)).min(longest)
    }

    /// The ticket with which the next look is a Claim in turn, and whether it was passed. `None` where it is not this
    /// caller's turn next, or where the holder is probably not done: there a read costs less.
    pub(super) fn claims_in_turn(&self, now: &Now, record: &Record) -> Option<(u64, bool)> {
        let ticket = self.ticket?;
        let times = self.times.filter(|times| times.spread * 2 / 3 <= GAPS.1)?;
        let (line, age) = (record.believable_line()?, self.age(now, record));
        let is_due = age + self.round_trip >= times.mean || times.are_regular() && age + times.spread >= times.mean;
        let is_first = line.served.is_some() && line.ahead_of(ticket) == 0;
        // A holder that is very late is read, since a refused write costs more.
        let claims = is_first && is_due && self.late_looks <= MAX_CLAIMS && record.freeze_reason.is_none();
        claims.then_some((ticket, line.served >= Some(ticket)))
    }

    /// For how long the holder has held the lock, as far as the caller can tell. A wrong clock costs looks, and perhaps this
    /// caller's turn.
    pub(super) fn age(&self, now: &Now, record: &Record) -> Duration {
        let granted_at =
            record.believable_end().map(|end| end.saturating_sub(millis_rounded_up(record.lease.duration())));
        let by_wall_clock = granted_at.map_or(0, |granted_at| now.wall.millis.saturating_sub(granted_at));
        let seen = self.grant.filter(|(token, _)| Some(*token) == record.token);
        let seen = seen.map_or(Duration::ZERO, |(_, since)| now.instants.longest_since(since));
        // More than the longest time, so that such a holder is late and not due at once again and again.
        Duration::from_millis(by_wall_clock).max(seen).min(MAX_LEASE * 2)
    }

    /// For how long a free lock is left to each of those ahead. Where the row has no times, the first in line may know none.
    fn slot(&self, record: &Record) -> Duration {
        let gap = if record.believable_hold_times().is_some() { self.gap() } else { GAPS.1 };
        ((gap + self.round_trip) * 2 + SLOT).min(MAX_SLOT)
    }

    /// The pause between two looks at a holder that should be done.
    fn gap(&self) -> Duration {
        let spread = self.times.map_or(GAPS.1, |times| times.spread * 2 / 3);
        spread.max(self.round_trip).clamp(GAPS.0, GAPS.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::WallClock;
    use crate::schema::Schema;
    use crate::value::Value;

    fn at(millis: u64) -> Instants {
        Instants { monotonic: Duration::from_millis(millis), wall: Duration::from_millis(millis) }
    }

    /// A row that does not tell when the lock was granted.
    fn held(token: u64) -> Record {
        let item: Item = [
            ("key", Value::S("k".to_owned())),
            ("ownerName", Value::S("a".to_owned())),
            ("leaseDuration", Value::S("20000".to_owned())),
            (
                "recordVersionNumber",
                Value::S("ll1-0123456789abcdef0123456789abcdef-0199d6a4c8000123456789abcdef".to_owned()),
            ),
            ("fencingToken", Value::N(token.to_string())),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect();
        Record::read(item, &Schema::default()).unwrap()
    }

    #[test]
    fn the_age_of_a_new_grant_does_not_count_from_the_one_before() {
        let mut waiter = Waiter::default();
        waiter.see(&held(7), at(1_000), None);
        let wall = WallClock { millis: 1_500, ..WallClock::default() };
        let now = Now { instants: at(1_500), wall, ..Now::default() };
        assert_eq!(waiter.age(&now, &held(7)), Duration::from_millis(500));
        assert_eq!(waiter.age(&now, &held(8)), Duration::ZERO);
    }

    #[test]
    fn a_released_lock_is_anybodys_soon_whatever_the_clock_of_its_last_holder_says() {
        let now = Now { wall: WallClock { millis: 1_000_000, ..WallClock::default() }, ..Now::default() };
        let left = |ends_at_ms| deserted_in(&now, &Record { ends_at_ms, ..held(7) }, &ClockBounds::default());
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!([left(None), left(Some(u64::MAX)), left(Some(9_000_000))], [None, seconds(6), seconds(6)]);
        assert_eq!([left(Some(999_999)), left(Some(500_000))], [seconds(4), Some(Duration::ZERO)]);
    }
}
