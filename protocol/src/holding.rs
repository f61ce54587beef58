//! What a holder stores about its own lock, and how long it may rely on its lease.

use super::clock_bounds::ClockBounds;
use super::instants::Instants;
use super::key::LockKey;
use super::lease::Lease;
use super::version::{Grant, Stamp, Version};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A held lock, as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub key: LockKey,
    pub owner: String,
    pub workflow: Option<String>,
    pub token: u64,
    /// The grant, with the newest stamp that was ever *sent*. A stamp counts as sent even before its request is.
    pub newest: Version,
    /// The newest stamp of the grant that was *seen* on the row. A release ends no newer one.
    pub seen: Stamp,
    /// The lease on the row.
    pub lease: Lease,
    /// The end of the lease on the row, in epoch milliseconds.
    pub ends_at_ms: u64,
    /// From when, and for how long, the holder may rely on its lease.
    pub validity: LeaseValidity,
    /// For idempotent work: how long after its lease the record counts.
    pub keep: Option<Duration>,
    /// The last commit, while its outcome is unknown to the caller.
    pub pending: Option<PendingCommit>,
}

/// A commit whose outcome is not yet known to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PendingCommit {
    /// It was sent with this stamp. The next renewal determines its outcome: the version that the renewal replaces
    /// shows whether the commit was applied. Once there is a newer version on the row, the commit can no longer be
    /// applied.
    Sent(Stamp),
    Applied,
    /// It was not applied, and never will be.
    NotApplied,
    /// The row no longer shows the outcome.
    Untold,
}

impl PendingCommit {
    /// The outcome after a renewal replaced this version.
    pub(crate) fn resolved_by(self, replaced: Option<Version>, grant: Grant) -> Self {
        let PendingCommit::Sent(stamp) = self else { return self };
        match replaced.filter(|version| version.grant == grant) {
            Some(version) if version.stamp == stamp => PendingCommit::Applied,
            Some(version) if version.stamp < stamp => PendingCommit::NotApplied,
            _ => PendingCommit::Untold,
        }
    }
}

/// The time during which a holder may rely on its lease, because nobody else can have been granted the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseValidity {
    since: Instants,
    lasting: Duration,
}

impl LeaseValidity {
    /// Counts from the moment before the write was first sent, because no contender can have begun to count, or have
    /// seen the written end, any earlier. Of the two ends, the earlier one counts.
    pub(crate) fn of(since: Instants, lease: &Lease, until_written_end: Duration, clock_bounds: &ClockBounds) -> Self {
        Self { since, lasting: clock_bounds.believed(lease.duration()).min(until_written_end) }
    }

    /// No time at all. A saved lock starts with this when it is read.
    pub(crate) fn none(now: Instants) -> Self {
        Self { since: now, lasting: Duration::ZERO }
    }

    /// What is left, by the more pessimistic clock.
    pub fn remaining(&self, now: Instants) -> Duration {
        self.lasting.saturating_sub(now.longest_since(self.since))
    }

    /// How long ago the write began that last proved the lock to be the holder's.
    pub fn age(&self, now: Instants) -> Duration {
        now.longest_since(self.since)
    }

    /// Whether the written end comes before the end of the believed lease.
    pub fn is_cut_short(&self, believed_lease: Duration) -> bool {
        self.lasting < believed_lease
    }
}
