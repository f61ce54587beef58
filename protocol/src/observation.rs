//! Decides when a holder is dead: when its version did not change for a whole lease, or when the end that it wrote is
//! long past.

use super::clock_bounds::ClockBounds;
use super::instants::{Instants, millis_rounded_down, millis_rounded_up};
use super::line::Turns;
use super::port::Now;
use super::record::Record;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a version has been seen unchanged. One call hands it to the next, so that callers that live for seconds
/// can together observe a lease that lasts for minutes.
///
/// Serialise it, keep it between two calls, and give it to the next acquire of the same key. The time has no effect when
/// the row has another version by then. The caller's place in line goes on.
///
/// The time between two calls does not count by itself, because its length is unknown. A caller that can vouch for it
/// adds it with [`and_waited`](Observation::and_waited): a Step Functions `Wait` state of 30 s proves 30 s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observation {
    version: String,
    lease_millis: u64,
    unchanged_for_millis: u64,
    /// The caller's place in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turns: Option<Turns>,
}

impl Observation {
    /// Makes an observation from its parts, to carry it in a format that serde does not write.
    pub fn from_parts(version: String, lease: Duration, unchanged_for: Duration) -> Self {
        let (lease_millis, unchanged_for_millis) = (millis_rounded_down(lease), millis_rounded_down(unchanged_for));
        Self { version, lease_millis, unchanged_for_millis, ticket: None, turns: None }
    }

    /// Adds time that has passed since this observation was made, and that the caller vouches for. Adding more than
    /// has passed breaks the lock's promise of exclusion.
    #[must_use]
    pub fn and_waited(mut self, waited: Duration) -> Self {
        self.unchanged_for_millis = self.unchanged_for_millis.saturating_add(millis_rounded_down(waited));
        self
    }

    /// The ticket that the caller has taken, which is its place in line (see `Acquire::in_turn`). `None` where it has none, or has
    /// given it up. A caller that waits between its calls brings it back with the observation.
    pub fn ticket(&self) -> Option<u64> {
        self.ticket
    }

    /// The same with this [ticket](Observation::ticket), to carry it in another format than serde's. A made-up one may cost others
    /// their turn, and nothing else. What the caller has lost to others who are not in line is carried by serde alone.
    #[must_use]
    pub fn with_ticket(self, ticket: Option<u64>) -> Self {
        Self { ticket, ..self }
    }

    /// The same with no more time than this, for whoever believes only so much of it.
    #[must_use]
    pub fn at_most(self, unchanged_for: Duration) -> Self {
        Self { unchanged_for_millis: self.unchanged_for_millis.min(millis_rounded_down(unchanged_for)), ..self }
    }

    pub(crate) fn turns(&self) -> Option<Turns> {
        self.turns
    }

    pub(crate) fn with_turns(self, turns: Option<Turns>) -> Self {
        Self { turns, ..self }
    }

    /// The version that was seen.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The lease on the row.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_millis)
    }

    /// How long the version was seen unchanged.
    pub fn unchanged_for(&self) -> Duration {
        Duration::from_millis(self.unchanged_for_millis)
    }
}

/// When a caller that was refused because the lock is frozen should look again, at the earliest. People thaw it.
const FROZEN: Duration = Duration::from_secs(10);

/// A version that this call observes.
#[derive(Debug)]
pub(crate) struct HolderWatch {
    record: Record,
    /// Read after the first response that showed this version. Time before that does not count.
    since: Instants,
    carried: Duration,
    /// Read after the first response that showed the row as it is now: a release, a freeze and a thaw keep the version.
    like_this_since: Instants,
}

impl HolderWatch {
    /// Starts or continues an observation. `earlier` is from this call, `carried` is from the caller.
    pub(crate) fn on(
        record: Record,
        after: Instants,
        earlier: Option<&HolderWatch>,
        carried: Option<&Observation>,
    ) -> Self {
        if let Some(earlier) = earlier.filter(|watch| watch.record.version == record.version) {
            let state = |record: &Record| (record.released, record.freeze_reason.is_some(), record.freeze_changed_at);
            let is_like_then = state(&earlier.record) == state(&record);
            let like_this_since = if is_like_then { earlier.like_this_since } else { after };
            return Self { record, since: earlier.since, carried: earlier.carried, like_this_since };
        }
        let carried = carried.filter(|seen| seen.version == record.version);
        let carried = carried.map_or(Duration::ZERO, Observation::unchanged_for);
        Self { record, since: after, carried, like_this_since: after }
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn observation(&self, now: Instants) -> Observation {
        let lease = Duration::from_millis(millis_rounded_up(self.record.lease.duration()));
        Observation::from_parts(self.record.version.clone(), lease, self.unchanged_for(now))
    }

    fn unchanged_for(&self, now: Instants) -> Duration {
        self.carried.saturating_add(now.shortest_since(self.since))
    }

    /// How long until the holder is proven dead, by whichever rule comes first. Zero when it is dead. The holder of a
    /// frozen lock never is: nobody may take it over.
    pub(crate) fn dead_in(&self, now: &Now, clock_bounds: &ClockBounds) -> Duration {
        let observed =
            clock_bounds.stretched(self.record.lease.duration()).saturating_sub(self.unchanged_for(now.instants));
        // By the wall clock: until `leaseEndsAt + max_clock_skew < now`.
        let dead_in = match self.dead_from(now, clock_bounds) {
            Some(from) => observed.min(Duration::from_millis(from.saturating_sub(now.wall.millis))),
            None => observed,
        };
        if self.record.freeze_reason.is_some() { dead_in.max(FROZEN) } else { dead_in }
    }

    /// For how long this caller has seen that the lock is free, or that its holder is dead, and that it is not frozen. Nothing but the
    /// order of those in line depends on it.
    pub(crate) fn takeable_for(&self, now: &Now, clock_bounds: &ClockBounds) -> Duration {
        let like_this_for = now.instants.monotonic_since(self.like_this_since);
        if self.record.released {
            // Nobody holds it. So a wall clock that was set back must not make it wait.
            return like_this_for;
        }
        let lease = clock_bounds.stretched(self.record.lease.duration());
        let observed = self.unchanged_for(now.instants).saturating_sub(lease);
        let by_wall_clock = self
            .dead_from(now, clock_bounds)
            .map_or(Duration::ZERO, |from| Duration::from_millis(now.wall.millis.saturating_sub(from)));
        observed.max(by_wall_clock).min(like_this_for)
    }

    /// The epoch millisecond from which the holder is dead. `None` where the wall clock proves nothing.
    fn dead_from(&self, now: &Now, clock_bounds: &ClockBounds) -> Option<u64> {
        let skew = millis_rounded_up(clock_bounds.max_clock_skew().filter(|_| now.wall.trusted)?);
        Some(self.record.believable_end()?.saturating_add(skew).saturating_add(1))
    }
}
