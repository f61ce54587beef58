//! The requests of the protocol, typed: what is asked of DynamoDB, before it becomes expressions.

use super::key::LockKey;
use super::lease::Lease;
use super::version::{Grant, Stamp, Version};
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// A request for one lock's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which row.
    pub key: LockKey,
    /// What to do with it.
    pub action: Action,
    /// Together with the caller's own writes, all of them or none, as this transaction; `None`: alone.
    pub transaction: Option<TransactionId>,
}

impl Request {
    /// A request that goes alone.
    pub fn alone(key: LockKey, action: Action) -> Self {
        Self { key, action, transaction: None }
    }
}

/// The client request token of a transaction: DynamoDB applies transactions with the same one, and
/// the same content, only once within ten minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionId(String);

impl TransactionId {
    /// One that was never used before, if the bytes are random.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes).simple().to_string())
    }

    /// The text that goes to DynamoDB: 32 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `UpdateItem`: take the lock if it is free or its lease has run out by the wall clock.
    Claim {
        /// The grant to write.
        grant: NewGrant,
        /// Leases that ended before this epoch millisecond are dead; `None` where the wall clock
        /// proves nothing.
        trusted: Option<u64>,
    },
    /// `UpdateItem`: take over exactly the version that was seen to be free or dead.
    Take {
        /// The grant to write.
        grant: NewGrant,
        /// The version that was seen.
        seen: String,
        /// It was seen held. A release keeps the version, so a copy of this request that comes after one must be
        /// refused: it would grant the lock to a call that has ended.
        held: bool,
        /// Where the new token comes from.
        token: NextToken,
    },
    /// `UpdateItem`: go on holding.
    Renew {
        /// The version to write, whose grant must still be the row's.
        version: Version,
        /// The token of the grant.
        token: u64,
        /// The lease that the writer believes to be on the row.
        known_lease: Lease,
        /// The lease to write; never shorter than the known one.
        lease: Lease,
        /// End of the lease to write, in epoch milliseconds.
        ends_at_ms: u64,
        /// What becomes of the payload.
        data: DataChange,
        /// For an idempotent work: how long after its lease the record counts.
        keep: Option<Duration>,
    },
    /// `UpdateItem`: give the lock back; the row stays, with its token.
    Release {
        /// Which grant is to end.
        scope: Scope,
        /// When the lease ended, in epoch milliseconds.
        ends_at_ms: u64,
        /// What becomes of the payload.
        data: DataChange,
        /// For an idempotent work: how long after its lease the record counts.
        keep: Option<Duration>,
    },
    /// `UpdateItem`: store the outcome of an idempotent work, which ends the grant.
    Settle {
        /// The grant, and the stamp of this attempt.
        version: Version,
        /// The token of the grant.
        token: u64,
        /// What is stored.
        outcome: StoredOutcome,
        /// The caller's wall clock in epoch milliseconds.
        now: u64,
        /// For how long from now it counts.
        keep: Duration,
    },
    /// `DeleteItem`: give the lock back and forget it, token included.
    Delete {
        /// Which grant is to end.
        scope: Scope,
    },
    /// `ConditionCheck`, only in a transaction: the caller's writes apply while this grant is current.
    Fence {
        /// The grant.
        grant: Grant,
        /// Its token.
        token: u64,
    },
    /// `GetItem`, strongly consistent.
    Peek,
}

/// A grant that is about to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGrant {
    /// Grant and stamp of this attempt.
    pub version: Version,
    /// Who will hold the lock.
    pub owner: String,
    /// For how long.
    pub lease: Lease,
    /// The caller's wall clock in epoch milliseconds.
    pub now: u64,
    /// End of the lease in epoch milliseconds.
    pub ends_at_ms: u64,
    /// What becomes of the payload.
    pub data: DataChange,
    /// The workflow that will hold the lock.
    pub workflow: Option<String>,
    /// For an idempotent work: what its record says.
    pub once: Option<OnceClaim>,
}

/// What the grant of an idempotent work writes beside the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceClaim {
    /// Fingerprint of the payload.
    pub payload: Option<String>,
    /// For how long after its lease the record counts.
    pub keep: Duration,
    /// Over a record whose time is over: nothing of it is kept but the token.
    pub anew: bool,
}

/// The outcome of an idempotent work, as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredOutcome {
    /// It was done, with this result as JSON.
    Done(String),
    /// It failed for good, with this failure as JSON.
    Failed(String),
}

impl StoredOutcome {
    /// What stands in `onceState`.
    pub fn state(&self) -> &'static str {
        match self {
            StoredOutcome::Done(_) => "done",
            StoredOutcome::Failed(_) => "failed",
        }
    }

    /// The result or the failure.
    pub fn json(&self) -> &str {
        match self {
            StoredOutcome::Done(json) | StoredOutcome::Failed(json) => json,
        }
    }
}

/// Without the JSON: it is the caller's and does not belong into logs.
impl fmt::Debug for StoredOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state())
    }
}

/// Where the token of a Take comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextToken {
    /// From the row itself, plus one: on a row of ours.
    FromRow,
    /// This one, the maximum of what the row says and the clock: on a peer's row.
    Exactly(u64),
}

/// Which grant a Release or Delete ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This grant, up to this version.
    Mine {
        /// The grant.
        grant: Grant,
        /// The newest version that may be ended.
        up_to: Stamp,
        /// The grant's token; unknown only when an acquire that was given up cleans up.
        token: Option<u64>,
    },
    /// Exactly this version, whoever wrote it.
    Exactly {
        /// The version.
        version: String,
        /// Only while this workflow holds the lock.
        workflow: Option<String>,
    },
}

/// What a write does to the row's payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataChange {
    /// Leaves it, so that it can carry progress across a takeover.
    #[default]
    Keep,
    /// Replaces it.
    Set(Vec<u8>),
    /// Removes it.
    Remove,
}
