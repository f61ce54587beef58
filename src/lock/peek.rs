//! Peek: reads who holds a lock, for people and dashboards.

use crate::engine::Engine;
use crate::engine::error::Error;
use crate::engine::operation::operation_span;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, Attribute, Line, LockKey, OURS, Operation, Record, from_epoch_millis};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

/// The row of a lock, as it was when it was read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeekedLock {
    /// The owner that holds the lock, or held it last.
    pub holder: String,
    /// Whether the lock was released. Even if it was not, its lease may have ended: see `lease_ends_at`.
    pub released: bool,
    /// The lease in the row.
    pub lease: Duration,
    /// When the holder acquired or last renewed the lock, by its own wall clock. `None` for rows of other clients.
    pub renewed_at: Option<SystemTime>,
    /// When the lease ends or the lock was released, by the holder's own wall clock. `None` for rows of other clients.
    pub lease_ends_at: Option<SystemTime>,
    /// The newest fencing token that this crate wrote. It may be stale when another client wrote the row.
    pub fencing_token: Option<u64>,
    /// The workflow that holds the lock.
    pub workflow: Option<String>,
    /// Why the lock was last [broken](crate::operator::Operator::break_lock).
    pub break_reason: Option<String>,
    /// Whether the lock is free because it was [broken](crate::operator::Operator::break_lock), and nobody has acquired it since. If its
    /// holder releases it later, it stays broken.
    pub broken: bool,
    /// Why the lock is [frozen](crate::operator::Operator::freeze), if it is.
    pub freeze_reason: Option<String>,
    /// When the lock was last frozen or thawed, by the operator's wall clock.
    pub freeze_changed_at: Option<SystemTime>,
    /// How many callers [wait in line](crate::Acquire::in_turn), as far as the row tells. Some of them may be gone.
    pub waiting: u64,
    /// The payload.
    pub data: Option<Vec<u8>>,
    /// The additional attributes, as far as they are texts or numbers. In a row that another client wrote last, these
    /// are all attributes that do not belong to the lock record.
    pub attributes: BTreeMap<String, Attribute>,
    /// The version in the row.
    pub version: String,
    line: Option<Line>,
}

impl PeekedLock {
    /// Whether the next acquire takes the lock over by the wall clock: the lock was not released, and its lease ended more than
    /// `max_clock_skew` before `now`. Give the [clock skew](crate::LockClientBuilder::max_clock_skew) of the callers.
    ///
    /// A row without [`lease_ends_at`](PeekedLock::lease_ends_at) does not tell. Its holder is dead when the version stays the same
    /// for a whole lease.
    pub fn is_dead(&self, now: SystemTime, max_clock_skew: Duration) -> bool {
        let over = self.lease_ends_at.and_then(|end| now.duration_since(end).ok());
        !self.released && over.is_some_and(|over| over > max_clock_skew)
    }

    /// Whether the lock is free, and is left to the caller with this [ticket](crate::Observation::ticket) before all others: so also
    /// where its ticket means nothing any more, because the row was deleted or another client wrote it.
    pub fn is_turn_of(&self, ticket: u64) -> bool {
        self.released && self.freeze_reason.is_none() && self.line.as_ref().is_none_or(|line| line.is_turn_of(ticket))
    }

    /// Whether the caller with this [ticket](crate::Observation::ticket) has a place in line. Not so when the ticket was served or
    /// passed, or means nothing any more: then nobody wakes its caller, and its next acquire takes another place. The row of
    /// another client does not tell, and this returns `true`.
    pub fn has_place(&self, ticket: u64) -> bool {
        !self.version.starts_with(OURS) || self.line.as_ref().is_some_and(|line| line.has(ticket))
    }

    /// The [tickets](crate::Observation::ticket) to wake, if the lock is free and somebody in line [sleeps between its
    /// calls](crate::Acquire::between_calls): from the next one to be served, who has not given up, to the last one that
    /// sleeps, as a [`Sleeper`](crate::Sleeper) has them. It tells so where a call gave the lock back and failed: its error names
    /// nobody.
    pub fn to_wake(&self) -> Option<RangeInclusive<u64>> {
        self.line.as_ref().filter(|_| self.released && self.freeze_reason.is_none())?.to_wake()
    }
}

#[doc(hidden)]
impl From<Record> for PeekedLock {
    fn from(record: Record) -> Self {
        Self {
            released: record.released,
            lease: record.lease.duration(),
            renewed_at: record.own_version.and_then(|version| from_epoch_millis(version.stamp.millis())),
            lease_ends_at: record.believable_end().and_then(from_epoch_millis),
            fencing_token: record.token,
            line: record.believable_line().cloned(),
            waiting: record.believable_line().map_or(0, |line| line.waiting()),
            workflow: record.believable_workflow().map(str::to_owned),
            broken: record.is_broken(),
            break_reason: record.break_reason,
            freeze_reason: record.freeze_reason,
            freeze_changed_at: record.freeze_changed_at.and_then(from_epoch_millis),
            holder: record.owner,
            data: record.data,
            attributes: record.attributes.into_iter().collect(),
            version: record.version,
        }
    }
}

impl fmt::Debug for PeekedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out payload and attributes, because they are the caller's data and do not belong in logs.
        f.debug_struct("PeekedLock")
            .field("holder", &self.holder)
            .field("released", &self.released)
            .field("lease", &self.lease)
            .field("renewed_at", &self.renewed_at)
            .field("lease_ends_at", &self.lease_ends_at)
            .field("fencing_token", &self.fencing_token)
            .field("workflow", &self.workflow)
            .field("break_reason", &self.break_reason)
            .field("broken", &self.broken)
            .field("freeze_reason", &self.freeze_reason)
            .field("freeze_changed_at", &self.freeze_changed_at)
            .field("waiting", &self.waiting)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

pub(crate) async fn peek(engine: &Engine, key: LockKey) -> Result<Option<PeekedLock>, Error> {
    engine.check_key(&key)?;
    let span = operation_span!("lock_peek", %key);
    let call = async |port: &mut EnginePort<'_>| protocol::peek(port, &engine.settings, &key).await;
    let outcome = |record: &Option<_>| if record.is_some() { "found" } else { "no row" };
    let record = engine.run_alone(&span, ("peek", Operation::Read, &key), call, outcome).await?;
    Ok(record.map(PeekedLock::from))
}
