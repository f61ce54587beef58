//! What the caller of an acquire asks for, and what it gets.

use crate::attributes::{Attribute, AttributesChange};
use crate::holding::{Holding, PendingCommit};
use crate::key::LockKey;
use crate::observation::Observation;
use crate::request::DataChange;
use crate::version::Version;
use crate::work::OnceRecord;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct AcquireOptions {
    pub key: LockKey,
    pub owner: String,
    pub workflow: Option<String>,
    /// How the call changes the row's payload.
    pub data: DataChange,
    /// What the call does with the additional attributes of the row.
    pub attributes: AttributesChange,
    pub reclaim: Reclaim,
    pub queueing: Queueing,
    /// The observation that an earlier call returned, with the ticket of the caller if it has one.
    pub observation: Option<Observation>,
    /// With [`Reclaim::Only`]: the last commit under the earlier grant, while its outcome is unknown.
    pub commit: Option<PendingCommit>,
}

/// How an acquire behaves where others wait for the same lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// Takes a ticket when two looks in a row show the same grant, or after a second, and with a second left.
    #[default]
    BehindSlowHolders,
    /// Takes a ticket at once, with a second left.
    AtOnce,
    /// Takes a ticket at once, also without time to wait. The caller sleeps between its calls, and each brings the ticket
    /// of the one before.
    BetweenCalls,
    /// Does not look at the line. For calls that cannot wait in it.
    Ignored,
}

/// Which holders may be replaced while they are alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    #[default]
    Nobody,
    /// The holder of a row of ours with the same owner. A retried task acquires its own lock again this way.
    SameOwner,
    /// The holder of this grant, or of a later grant of the same owner. A saved lock is taken again in this way, so
    /// that its earlier copies are fenced off.
    Only(Version),
}

/// How an acquire ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    Granted {
        holding: Holding,
        /// The payload on the row.
        data: Option<Vec<u8>>,
        /// The caller must renew before it works. Less than half of the time that a holder relies on is left: the
        /// response came late, or the end of the lease was written by a clock that was behind.
        renew_first: bool,
    },
    /// Another holder has it.
    Held(HolderSeen),
}

/// How a start of idempotent work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// Like acquiring a lock. When it was granted, also the work's record, which includes this attempt.
    Lock(Acquired, Option<OnceRecord>),
    /// The work already has an outcome.
    Settled(OnceRecord),
    /// The record was made for another payload.
    Mismatch(OnceRecord),
}

/// Another holder of a lock, as this call saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderSeen {
    pub owner: String,
    /// The end of the lease in epoch milliseconds, by the holder's wall clock. `None` where it is unknown.
    pub ends_at_ms: Option<u64>,
    /// The time after which the holder can be proven dead, if it does not renew. At least ten seconds for a frozen lock.
    /// Of a lock that is free, but for which others wait in line: when it is anybody's.
    pub retry_after: Duration,
    /// How many others wait in line, as far as the row tells.
    pub waiting: u64,
    /// Nobody holds the lock: it is free, or its holder provably dead. It is left to those who wait in line.
    pub left_to_line: bool,
    /// Why the lock is frozen, if it is. Its last holder may have released it.
    pub freeze_reason: Option<String>,
    /// What this call observed. The caller can give it to the next call.
    pub observation: Observation,
    /// The holder's additional attributes.
    pub attributes: Vec<(String, Attribute)>,
}

impl HolderSeen {
    /// The same, once the caller has given up its ticket, and so many fewer wait.
    pub(super) fn without_ticket(self, fewer: u64) -> Self {
        let observation = self.observation.with_ticket(None);
        Self { observation, waiting: self.waiting.saturating_sub(fewer), ..self }
    }
}
