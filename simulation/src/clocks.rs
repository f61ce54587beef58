//! One process's pair of clocks: what they say at a point in true time.

use crate::plan::ClockFaults;
use fastrand::Rng;
use lambda_lock::protocol::Instants;
use std::time::Duration;

/// True time, in nanoseconds since a simulation began.
pub(crate) type Nanos = u64;

const MILLION: u64 = 1_000_000;
/// What true time is called on wall clocks when a simulation begins.
pub(crate) const EPOCH: Duration = Duration::from_secs(1_800_000_000);
const EPOCH_NANOS: Nanos = EPOCH.as_nanos() as Nanos;
/// As far as a wall clock may be behind that comes from a snapshot.
pub(crate) const MOST_BEHIND: Duration = Duration::from_secs(7200);
/// Two rates at these ends differ by a little less than 5 %.
const MOST_DRIFT: i64 = 24_000;

#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// By how many millionths the clocks are too fast.
    fast: i64,
    wall_fast: i64,
    /// For how long the monotonic clock stood still. (Who shares it may look at it from a time before that is over.)
    frozen: Nanos,
    /// What the wall clock was off at `set`.
    off: i64,
    set: Nanos,
    /// How far it may be off, either way.
    bound: i64,
    /// By how much the wall clock is behind all others, beyond what the rules allow.
    behind: Nanos,
}

impl Clocks {
    pub(crate) fn new(faults: &ClockFaults, skew: Duration, now: Nanos, rng: &mut Rng) -> Self {
        let fast = match (faults.drift, rng.u8(..4)) {
            (false, _) => 0,
            // At the ends it is where mistakes show.
            (true, 0) => -MOST_DRIFT,
            (true, 1) => MOST_DRIFT,
            (true, _) => rng.i64(-MOST_DRIFT..=MOST_DRIFT),
        };
        if faults.behind && rng.bool() {
            let behind = rng.u64(skew.as_nanos() as Nanos * 2..=MOST_BEHIND.as_nanos() as Nanos);
            return Self { fast, wall_fast: 0, frozen: 0, off: 0, set: now, bound: 0, behind };
        }
        let half = skew.as_nanos() as i64 / 2;
        let bound = if faults.beyond_bounds { half * 20 } else { half };
        // Where pauses stop the monotonic clock, the wall clock is the one that keeps its rate, and nobody
        // has to set it right.
        let wall_fast = if faults.freezes { 0 } else { fast };
        Self { fast, wall_fast, frozen: 0, off: rng.i64(-bound..=bound), set: now, bound, behind: 0 }
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.behind > 0
    }

    fn scaled(&self, nanos: Nanos) -> u64 {
        // Not beyond 2⁶⁴ before five hours are over.
        nanos * MILLION.saturating_add_signed(self.fast) / MILLION
    }

    pub(crate) fn monotonic(&self, now: Nanos) -> u64 {
        self.scaled(now.saturating_sub(self.frozen))
    }

    /// When the monotonic clock will have come so far, if it does not stop.
    pub(crate) fn when(&self, monotonic: u64) -> Nanos {
        monotonic * MILLION / MILLION.saturating_add_signed(self.fast) + 1 + self.frozen
    }

    pub(crate) fn freeze(&mut self, lasting: Nanos) {
        self.frozen += lasting;
    }

    /// How far the wall clock is off. One that would drift out of its bounds is set right by somebody.
    pub(crate) fn off(&mut self, now: Nanos) -> i64 {
        let off = self.off + now.saturating_sub(self.set) as i64 / MILLION as i64 * self.wall_fast;
        if off.abs() > self.bound {
            self.off = 0;
            self.set = now;
            return 0;
        }
        off
    }

    /// Sets the wall clock to somewhere else within its bounds.
    pub(crate) fn jump(&mut self, now: Nanos, rng: &mut Rng) {
        self.off = rng.i64(-self.bound..=self.bound);
        self.set = now;
    }

    pub(crate) fn read(&mut self, now: Nanos) -> Instants {
        let off = self.off(now);
        Instants {
            monotonic: Duration::from_nanos(self.monotonic(now)),
            wall: Duration::from_nanos((EPOCH_NANOS + now - self.behind).saturating_add_signed(off)),
        }
    }
}
