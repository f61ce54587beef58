//! The requests of the protocol as types, before they become DynamoDB expressions.

use super::attributes::{AttributesChange, EarlierNames};
use super::key::LockKey;
use super::lease::Lease;
use super::version::{Grant, Version};
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// A request for the row of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub key: LockKey,
    pub action: Action,
    /// The transaction in which the request, those of other locks, and the caller's own writes are applied, all or none.
    /// `None` for a request that goes alone.
    pub transaction: Option<TransactionId>,
}

impl Request {
    /// Makes a request that goes alone.
    pub fn alone(key: LockKey, action: Action) -> Self {
        Self { key, action, transaction: None }
    }
}

/// For how long the same transaction is sent again. DynamoDB recognises its token for ten minutes (AWS documents this
/// with `TransactWriteItems`), and this is well within them.
pub(super) const REPEATABLE: Duration = Duration::from_secs(8 * 60);

/// The client request token of a transaction. Within ten minutes, DynamoDB applies transactions with the same token
/// and the same content only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionId(String);

impl TransactionId {
    /// Makes an id from random bytes.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes).simple().to_string())
    }

    /// The text that is sent to DynamoDB: 32 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `UpdateItem`: acquires the lock if it is free, or if its lease is over by the wall clock.
    Claim {
        grant: NewGrant,
        /// Leases that ended before this epoch millisecond are dead. `None` where the wall clock proves nothing.
        trusted: Option<u64>,
        /// It is applied only while nobody waits in line.
        looks_at_line: bool,
        /// Where the new token comes from.
        token: NextToken,
    },
    /// `UpdateItem`: takes a ticket, where the lock is held or others wait in line already.
    Join {
        /// The caller sleeps until it is woken.
        sleeps: bool,
    },
    /// `UpdateItem`: says that the caller with this ticket has given up.
    Leave { ticket: u64 },
    /// `UpdateItem`: takes over exactly the version that was seen to be free or dead.
    Take {
        grant: NewGrant,
        /// The version that was seen.
        seen: String,
        /// The version was seen held. A release keeps the version, so a copy of this request that arrives after a
        /// release must be refused. Otherwise it would grant the lock to a call that has ended.
        held: bool,
        /// The call reclaims the lock. A frozen lock can be reclaimed while it is held, and is nobody else's.
        reclaims: bool,
        line: LineRule,
        /// Where the new token comes from.
        token: NextToken,
        /// The additional attributes that the row has.
        names: EarlierNames,
    },
    /// `UpdateItem`: extends the lease.
    Renew {
        /// The version to write. Its grant must still be the row's.
        version: Version,
        token: u64,
        /// The lease that the writer believes to be on the row.
        known_lease: Lease,
        /// The lease to write. Never shorter than the known one.
        lease: Lease,
        /// The end of the lease to write, in epoch milliseconds.
        ends_at_ms: u64,
        data: DataChange,
        /// For idempotent work: how long after its lease the record counts.
        keep: Option<Duration>,
    },
    /// `UpdateItem`: releases the lock. The row stays, with its token.
    Release {
        /// Which grant to release.
        scope: Scope,
        /// The end of the lease to write, in epoch milliseconds.
        ends_at_ms: u64,
        data: DataChange,
        /// For idempotent work: how long after its lease the record counts.
        keep: Option<Duration>,
        /// Whether the response has the row, so that it shows who is to be woken.
        returns_row: bool,
    },
    /// `UpdateItem`: releases exactly the version that somebody saw held, whoever holds it.
    Break {
        /// The version that was seen.
        seen: String,
        /// The version to write, where a peer wrote the row: its next heartbeat fails because of it. Ours stays, as with a
        /// release.
        version: Option<String>,
        /// The end of the lease to write, in epoch milliseconds.
        ends_at_ms: u64,
        /// Why, for those who read the row later.
        reason: String,
    },
    /// `UpdateItem`: freezes the lock, so that nobody but its holder is granted it. Makes the row where there is none.
    Freeze {
        row: FrozenRow,
        /// The time of the change, in epoch milliseconds. Larger than that of the change before.
        at: u64,
        /// Why, for those who are refused.
        reason: String,
    },
    /// `UpdateItem`: thaws a frozen lock.
    Thaw {
        /// The time of its last freeze or thaw, as it was seen.
        seen: Option<u64>,
        /// The time of this change, in epoch milliseconds. Larger than that.
        at: u64,
    },
    /// `UpdateItem`: opens idempotent work again that failed for good, as if its last attempt had been released.
    Reset {
        /// The version of the settled record that was seen.
        seen: String,
        /// The version that the record had before it was settled.
        version: String,
        /// The end of the lease to write, in epoch milliseconds.
        ends_at_ms: u64,
        /// Why, for those who read the row later.
        reason: String,
    },
    /// `UpdateItem`: stores the outcome of idempotent work, which ends the grant.
    Settle {
        /// The grant, and the stamp of this attempt.
        version: Version,
        token: u64,
        outcome: StoredOutcome,
        /// The caller's wall clock in epoch milliseconds.
        now: u64,
        /// How long from now the record counts.
        keep: Duration,
    },
    /// `ConditionCheck`, only in a transaction: the caller's writes are applied only while this grant is current.
    Fence { grant: Grant, token: u64 },
}

impl Action {
    /// Releases what an attempt without a response may have got, and refuses a late copy of it.
    pub(super) fn release_of_attempt(attempt: Version, now_ms: u64, keep: Option<Duration>) -> Self {
        let ends_at_ms = now_ms.max(attempt.stamp.millis() + 1);
        let scope = Scope::Mine { up_to: attempt, token: None };
        Action::Release { scope, ends_at_ms, data: DataChange::Keep, keep, returns_row: false }
    }
}

/// What a Take has to do with those who wait in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineRule {
    /// Nothing.
    Ignored,
    /// It is applied only while nobody waits in line. A ticket changes no version.
    NobodyWaits,
    /// All have given up, up to this ticket. It is applied only while nobody has taken a later one, and serves them all.
    Ends(u64),
    /// It serves this ticket.
    Serves {
        ticket: u64,
        /// The tickets that the row need not list any more: their callers have given up, and this one comes after them.
        over: Vec<u64>,
    },
}

/// The row of a lock that is to be frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrozenRow {
    /// It is there. Contains the time of its last freeze or thaw, as it was seen.
    Seen(Option<u64>),
    /// There is none. Contains the version of the released row to make.
    Missing(Version),
}

/// A grant to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGrant {
    /// The grant, and the stamp of this attempt.
    pub version: Version,
    pub owner: String,
    pub lease: Lease,
    /// The caller's wall clock in epoch milliseconds.
    pub now: u64,
    /// The end of the lease in epoch milliseconds.
    pub ends_at_ms: u64,
    pub data: DataChange,
    pub attributes: AttributesChange,
    pub workflow: Option<String>,
    /// For idempotent work: what to write into its record.
    pub once: Option<OnceClaim>,
}

/// What the grant of idempotent work writes beside the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceClaim {
    /// The fingerprint of the payload.
    pub payload: Option<String>,
    /// How long after its lease the record counts.
    pub keep: Duration,
    /// The earlier record's time is over. Of it, only the token is kept.
    pub anew: bool,
}

/// The outcome of idempotent work, as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredOutcome {
    /// The work was done. Contains its result as JSON.
    Done(String),
    /// The work failed permanently. Contains the failure as JSON.
    Failed(String),
}

impl StoredOutcome {
    pub(super) const DONE: &str = "done";
    pub(super) const FAILED: &str = "failed";

    /// The value of `onceState`.
    pub fn state(&self) -> &'static str {
        match self {
            StoredOutcome::Done(_) => Self::DONE,
            StoredOutcome::Failed(_) => Self::FAILED,
        }
    }

    /// The result or the failure, as JSON.
    pub fn json(&self) -> &str {
        match self {
            StoredOutcome::Done(json) | StoredOutcome::Failed(json) => json,
        }
    }
}

/// Leaves out the JSON, which belongs to the caller and not in logs.
impl fmt::Debug for StoredOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state())
    }
}

/// Where the token of a grant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextToken {
    /// From the row itself, plus one. For rows of ours.
    FromRow,
    /// This token: the larger of the row's token plus one, and the clock. For rows of a peer.
    Exactly(u64),
    /// This token, where the row has a smaller one or none. For locks that are acquired together, so that they have one
    /// token.
    Larger(u64),
}

/// Which grant a Release ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The grant of this version.
    Mine {
        /// The newest version that may be ended.
        up_to: Version,
        /// The grant's token. Unknown only when an acquire without a response releases its grant.
        token: Option<u64>,
    },
    /// Exactly this version, whoever wrote it.
    Exactly {
        version: String,
        /// Only while this workflow holds the lock.
        workflow: Option<String>,
    },
}

/// What a write does with the row's payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataChange {
    /// Keeps it, so that it can carry progress across a takeover.
    #[default]
    Keep,
    Set(Vec<u8>),
    Remove,
}

impl<T: Into<Vec<u8>>> From<T> for DataChange {
    fn from(data: T) -> Self {
        DataChange::Set(data.into())
    }
}
