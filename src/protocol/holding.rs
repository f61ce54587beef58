//! What a holder knows about its own lock, and what it may still believe.

use super::clock_bounds::ClockBounds;
use super::instants::Instants;
use super::key::LockKey;
use super::lease::Lease;
use super::version::{Grant, Stamp, Version};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A lock from its holder's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which lock.
    pub key: LockKey,
    /// Who holds it.
    pub owner: String,
    /// The workflow that holds it.
    pub workflow: Option<String>,
    /// The fencing token of the grant.
    pub token: u64,
    /// The grant, with the newest stamp that was ever *sent*: it counts from before its request.
    pub newest: Version,
    /// The newest stamp of the grant that was *seen* on the row: a release goes no further.
    pub seen: Stamp,
    /// The lease on the row.
    pub lease: Lease,
    /// The end of the lease on the row, in epoch milliseconds.
    pub ends_at_ms: u64,
    /// From when, and for how long, the holder believes in its lease.
    pub validity: LeaseValidity,
    /// For an idempotent work: how long after its lease the record counts.
    pub keep: Option<Duration>,
    /// The last commit, while its outcome is not known to the caller.
    pub pending: Option<PendingCommit>,
}

/// A commit whose outcome the caller does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PendingCommit {
    /// It was sent with this stamp. The next renewal settles it: the version that it replaces tells
    /// whether the commit was applied, and with a newer version on the row it never will be.
    Sent(Stamp),
    /// It was applied.
    Applied,
    /// It was not applied, and never will be.
    NotApplied,
    /// The row no longer tells.
    Untold,
}

impl PendingCommit {
    /// What is known after a renewal replaced this version.
    pub(crate) fn settled_by(self, replaced: Option<Version>, grant: Grant) -> Self {
        let PendingCommit::Sent(stamp) = self else { return self };
        match replaced.filter(|version| version.grant == grant) {
            Some(version) if version.stamp == stamp => PendingCommit::Applied,
            Some(version) if version.stamp < stamp => PendingCommit::NotApplied,
            _ => PendingCommit::Untold,
        }
    }
}

/// The span in which a holder believes that nobody else can have been granted the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseValidity {
    since: Instants,
    lasting: Duration,
}

impl LeaseValidity {
    /// From the moment before the write was first sent: no contender can have begun to count, or
    /// to see the written end, any earlier. Of the two ends, the earlier one.
    pub(crate) fn of(since: Instants, lease: &Lease, until_written_end: Duration, clock_bounds: &ClockBounds) -> Self {
        Self { since, lasting: clock_bounds.believed(lease.duration()).min(until_written_end) }
    }

    /// No belief at all: a lock that was written down and read again.
    pub(crate) fn none(now: Instants) -> Self {
        Self { since: now, lasting: Duration::ZERO }
    }

    /// What is left, by the more pessimistic clock.
    pub fn remaining(&self, now: Instants) -> Duration {
        self.lasting.saturating_sub(now.longest_since(self.since))
    }

    /// Whether the written end comes before the end of what is believed of the lease.
    pub fn is_cut_short(&self, believed_lease: Duration) -> bool {
        self.lasting < believed_lease
    }
}
