//! What one seed decides beforehand: clocks, sizes, and how strong each fault is.

use crate::clocks::MAX_BEHIND;
use crate::several;
use fastrand::Rng;
use lambda_lock::Dialect;
use std::time::Duration;

/// How long an idle row is kept, if rows have a TTL attribute.
pub(crate) const RETENTION: Duration = Duration::from_secs(2);

/// The seeds of crowds begin here, and end where those of sets begin. In a crowd up to 16 callers of this crate all wait in
/// line for the same lock.
pub const FIRST_CROWD: u64 = 1 << 47;

pub(crate) fn is_crowd(seed: u64) -> bool {
    (FIRST_CROWD..several::FIRST_SEED).contains(&seed)
}

/// The probability of a fault, from 0 to 1.
pub(crate) type Chance = f64;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) dialect: Dialect,
    pub(crate) keys: usize,
    /// The number of callers of this crate that live at the same time.
    pub(crate) workers: usize,
    /// Those callers all wait in line.
    pub(crate) in_line: bool,
    /// The number of callers that sleep in line between their calls.
    pub(crate) sleepers: usize,
    /// The number of callers that live for one try and pass on what they saw.
    pub(crate) watchers: usize,
    pub(crate) peer: Option<Peer>,
    /// Some callers share a client.
    pub(crate) shared: bool,
    /// The table has a sort key.
    pub(crate) sort_key: bool,
    /// Rows have a TTL attribute.
    pub(crate) ttl: bool,
    /// Holders leave a payload in the row.
    pub(crate) data: bool,
    /// Holders leave additional attributes in the row.
    pub(crate) attributes: bool,
    /// A process releases the locks of workflows that ended.
    pub(crate) cleaner: bool,
    /// Workers of the same name reclaim the lock from each other.
    pub(crate) one_owner: bool,
    /// Locks are handed over to other processes, also as copies of guards.
    pub(crate) handing_over: bool,
    /// The number of idempotent works to do.
    pub(crate) jobs: usize,
    /// The other client deletes the row with its release, as Java's does by default.
    pub(crate) peer_deletes: bool,
    /// The faults stop after this many grants, or after a certain time.
    pub(crate) grants: usize,
    pub(crate) longest: Duration,

    pub(crate) lease: Duration,
    pub(crate) skew: Duration,
    pub(crate) by_wall_clock: bool,
    pub(crate) timeout: Duration,
    pub(crate) latency: Duration,
    pub(crate) faults: Faults,
    pub(crate) clocks: ClockFaults,
}

#[derive(Clone, Debug)]
pub(crate) struct Faults {
    pub(crate) request_lost: Chance,
    pub(crate) answer_lost: Chance,
    pub(crate) failure_after_apply: Chance,
    pub(crate) duplicate: Chance,
    pub(crate) throttled: Chance,
    /// Credentials have expired, or a response has an unknown error code.
    pub(crate) rejected: Chance,
    /// A refusal does not contain the row.
    pub(crate) mute: Chance,
    /// Something between the client and DynamoDB answers by itself, with a clock of its own.
    pub(crate) strangers: Chance,
    /// DynamoDB's own response has a wrong date.
    pub(crate) wrong_date: Chance,
    /// How often in a minute somebody writes nonsense into a row.
    pub(crate) spoiled: f64,
    /// How often in a minute everything is throttled for 1–5 s.
    pub(crate) bursts: f64,
    pub(crate) slow: Chance,
    /// Before a process continues.
    pub(crate) pause: Chance,
    /// Between two instructions, at any place where a clock is read.
    pub(crate) pause_at_clock: Chance,
    pub(crate) crash: Chance,
    pub(crate) cancelled: Chance,
    /// The condition of the caller's own writes does not hold.
    pub(crate) writes_refused: Chance,
    /// Another transaction has an item of a transaction, or an item is throttled.
    pub(crate) conflicts: Chance,
    /// Processes are frozen during a commit for longer than DynamoDB remembers a transaction.
    pub(crate) long_freezes: bool,
    /// How often in a minute the row is deleted by hand.
    pub(crate) row_deleted: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct ClockFaults {
    /// Clock rates differ, as much as the rules allow.
    pub(crate) drift: bool,
    /// A pause stops the monotonic clock.
    pub(crate) freezes: bool,
    /// How often in a minute the wall clock of each process jumps.
    pub(crate) jumps: f64,
    /// Wall clocks are wrong by more than the rules allow.
    pub(crate) beyond_bounds: bool,
    /// Some processes begin with a wall clock that is up to hours behind, as a snapshot's may be, and some jumps set a
    /// wall clock back by as much, once for each process. DynamoDB's responses show them its time, so all promises
    /// hold.
    pub(crate) behind: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Java,
    Go,
}

pub(crate) fn millis(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.u64(from..=to))
}

impl Plan {
    pub(crate) fn of(rng: &mut Rng) -> Self {
        let calm = rng.u8(..16) == 0;
        let mut often = |most: f64| if rng.bool() && !calm { rng.f64() * most } else { 0.0 };
        // These faults change a run much, so most seeds do not have them.
        let (rejected, mute, strangers) = (often(0.08), often(0.2), often(0.05));
        let (wrong_date, spoiled) = (often(0.05), often(8.0));
        let mut rare = |chance: f64| if rng.u8(..3) == 0 { chance } else { 0.0 };
        let (rejected, mute, strangers) = (rare(rejected), rare(mute), rare(strangers));
        let (wrong_date, spoiled) = (rare(wrong_date), rare(spoiled));
        let mut chance = |most: f64| if rng.bool() && !calm { rng.f64() * most } else { 0.0 };
        let faults = Faults {
            request_lost: chance(0.15),
            answer_lost: chance(0.15),
            failure_after_apply: chance(0.10),
            duplicate: chance(0.10),
            throttled: chance(0.15),
            rejected,
            mute,
            strangers,
            wrong_date,
            spoiled,
            bursts: chance(2.0),
            slow: chance(0.10),
            pause: chance(0.05),
            pause_at_clock: chance(0.01),
            crash: chance(0.02),
            cancelled: chance(0.05),
            writes_refused: chance(0.2),
            conflicts: chance(0.15),
            long_freezes: rng.u8(..8) == 0,
            row_deleted: if rng.u8(..8) == 0 { rng.f64() * 4.0 } else { 0.0 },
        };
        let freezes = rng.bool();
        let clocks = ClockFaults {
            drift: rng.bool(),
            freezes,
            // One of a holder's clocks must keep its rate. If pauses stop one clock, nobody sets the other.
            jumps: if !freezes && rng.bool() { rng.f64() * 20.0 } else { 0.0 },
            beyond_bounds: rng.u8(..12) == 0,
            behind: false,
        };
        let peer = [None, None, None, None, Some(Peer::Java), Some(Peer::Go)][rng.usize(..6)];
        let plan = Self {
            dialect: if peer == Some(Peer::Go) { Dialect::Go } else { Dialect::Java },
            keys: if rng.u8(..8) == 0 { 2 } else { 1 },
            workers: if rng.u8(..12) == 0 { rng.usize(8..=16) } else { rng.usize(2..=4) },
            in_line: false,
            sleepers: 0,
            shared: rng.u8(..3) == 0,
            sort_key: rng.u8(..4) == 0,
            ttl: rng.u8(..4) == 0,
            data: rng.u8(..3) == 0,
            attributes: false,
            watchers: usize::from(rng.u8(..3) == 0),
            peer,
            cleaner: rng.u8(..6) == 0,
            one_owner: rng.u8(..5) == 0,
            handing_over: rng.u8(..2) == 0,
            jobs: if rng.u8(..4) == 0 { rng.usize(1..=4) } else { 0 },
            peer_deletes: rng.u8(..10) == 0,
            grants: rng.usize(12..=24),
            longest: Duration::from_secs(40),
            lease: millis(rng, 200, 1500),
            skew: millis(rng, 20, 300),
            by_wall_clock: rng.u8(..3) > 0,
            timeout: millis(rng, 60, 300),
            latency: millis(rng, 1, 12),
            faults,
            clocks,
        };
        // Not drawn, so that the other seeds run as before.
        let plan = Self { attributes: plan.lease.as_millis().is_multiple_of(3), ..plan };
        if plan.clocks.beyond_bounds || rng.u8(..12) > 0 { plan } else { plan.with_clocks_behind() }
    }

    /// The same with a crowd in line. The random numbers are others than those of the plan.
    pub(crate) fn of_crowd(self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed);
        let (workers, grants) = (rng.usize(4..=16), rng.usize(24..=48));
        let sleepers = if rng.bool() { rng.usize(1..=4) } else { 0 };
        Self { in_line: true, keys: 1, workers, grants, sleepers, ..self }
    }

    fn with_clocks_behind(mut self) -> Self {
        self.clocks.behind = true;
        // Two responses with wrong dates could agree that such a clock is right.
        self.faults.wrong_date = 0.0;
        self
    }

    /// Whether rows are deleted or written by others, so that tokens grow only as far as clocks agree.
    pub(crate) fn tokens_need_clocks(&self) -> bool {
        self.faults.row_deleted > 0.0 || self.peer.is_some() || self.faults.spoiled > 0.0
    }
}

impl Plan {
    /// Whether a response may show that a clock is behind by more than the rules allow, rightly or with a wrong date.
    pub(crate) fn shows_clocks_behind(&self) -> bool {
        self.clocks.behind || self.clocks.beyond_bounds || self.faults.wrong_date > 0.0
    }

    /// By how much the wall clocks of two processes can differ, in nanoseconds.
    pub(crate) fn disagreement(&self) -> u64 {
        // One millisecond for rounding.
        let skew = self.skew.as_nanos() as u64 + 1_000_000;
        let behind = if self.clocks.behind { MAX_BEHIND.as_nanos() as u64 } else { 0 };
        // If clocks are corrected by the `Date` header: its resolution of one second, and the time that the response
        // travels.
        if self.clocks.beyond_bounds { skew * 20 + 2_500_000_000 } else { skew + behind }
    }
}
