//! The pair of clocks of one process, and what they show at a point in true time.

use crate::plan::ClockFaults;
use fastrand::Rng;
use lambda_lock_protocol::Instants;
use std::time::Duration;

/// True time in nanoseconds since the simulation began.
pub(crate) type Nanos = u64;

const MILLION: u64 = 1_000_000;
/// What correct wall clocks show when a simulation begins.
pub(crate) const EPOCH: Duration = Duration::from_secs(1_800_000_000);
const EPOCH_NANOS: Nanos = EPOCH.as_nanos() as Nanos;
/// By how much a wall clock that comes from a snapshot is behind: so much that any response shows it.
const MIN_BEHIND: Duration = Duration::from_secs(60);
pub(crate) const MAX_BEHIND: Duration = Duration::from_secs(7200);
/// Two clocks at the two ends differ in rate by a little less than 5 %.
const MAX_DRIFT: i64 = 24_000;

#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    /// By how many millionths the clocks run too fast.
    fast: i64,
    wall_fast: i64,
    /// For how long the monotonic clock stood still. A process that shares the clock may read it at a time before the
    /// pause has ended.
    frozen: Nanos,
    /// By how much the wall clock was wrong at `set`.
    off: i64,
    set: Nanos,
    /// The largest error of the wall clock, in both directions.
    bound: i64,
    /// By how much the wall clock is behind all others, beyond what the rules allow.
    behind: Nanos,
}

impl Clocks {
    pub(crate) fn new(faults: &ClockFaults, skew: Duration, now: Nanos, rng: &mut Rng) -> Self {
        let fast = match (faults.drift, rng.u8(..4)) {
            (false, _) => 0,
            // Mistakes show at the two ends.
            (true, 0) => -MAX_DRIFT,
            (true, 1) => MAX_DRIFT,
            (true, _) => rng.i64(-MAX_DRIFT..=MAX_DRIFT),
        };
        if faults.behind && rng.bool() {
            let behind = hours(rng);
            return Self { fast, wall_fast: 0, frozen: 0, off: 0, set: now, bound: 0, behind };
        }
        let half = skew.as_nanos() as i64 / 2;
        let bound = if faults.beyond_bounds { half * 20 } else { half };
        // If pauses stop the monotonic clock, the wall clock keeps its rate, and nobody has to correct it.
        let wall_fast = if faults.freezes { 0 } else { fast };
        Self { fast, wall_fast, frozen: 0, off: rng.i64(-bound..=bound), set: now, bound, behind: 0 }
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.behind > 0
    }

    fn scaled(&self, nanos: Nanos) -> u64 {
        // Does not exceed 2⁶⁴ in the first five hours.
        nanos * MILLION.saturating_add_signed(self.fast) / MILLION
    }

    pub(crate) fn monotonic(&self, now: Nanos) -> u64 {
        self.scaled(now.saturating_sub(self.frozen))
    }

    /// The true time at which the monotonic clock shows `monotonic`, if it does not stop before.
    pub(crate) fn when(&self, monotonic: u64) -> Nanos {
        monotonic * MILLION / MILLION.saturating_add_signed(self.fast) + 1 + self.frozen
    }

    pub(crate) fn freeze(&mut self, lasting: Nanos) {
        self.frozen += lasting;
    }

    /// The error of the wall clock. A clock that would drift out of its bounds is corrected.
    pub(crate) fn off(&mut self, now: Nanos) -> i64 {
        let off = self.off + now.saturating_sub(self.set) as i64 / MILLION as i64 * self.wall_fast;
        if off.abs() > self.bound {
            self.off = 0;
            self.set = now;
            return 0;
        }
        off
    }

    /// Sets the wall clock to another time within its bounds.
    pub(crate) fn jump(&mut self, now: Nanos, rng: &mut Rng) {
        self.off = rng.i64(-self.bound..=self.bound);
        self.set = now;
    }

    /// Sets the wall clock back by hours, as a restore does that the monotonic clock does not notice.
    pub(crate) fn fall_behind(&mut self, rng: &mut Rng) {
        self.behind += hours(rng);
    }

    pub(crate) fn read(&mut self, now: Nanos) -> Instants {
        let off = self.off(now);
        Instants {
            monotonic: Duration::from_nanos(self.monotonic(now)),
            wall: Duration::from_nanos((EPOCH_NANOS + now - self.behind).saturating_add_signed(off)),
        }
    }
}

fn hours(rng: &mut Rng) -> Nanos {
    rng.u64(MIN_BEHIND.as_nanos() as Nanos..=MAX_BEHIND.as_nanos() as Nanos)
}
