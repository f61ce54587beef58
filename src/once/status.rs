//! Status: reads the record of idempotent work, for people and dashboards.

use crate::engine::Engine;
use crate::engine::error::Error;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, LockKey, OnceRecord, Operation, StoredOutcome, from_epoch_millis};
use std::fmt;
use std::time::SystemTime;
use tracing::Span;

/// The record of idempotent work, as it was when it was read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceStatus {
    /// How far the work is.
    pub state: OnceState,
    /// How many attempts there were.
    pub attempts: u64,
    /// With which failure the work failed permanently, as JSON.
    pub failure: Option<String>,
    /// When the work was first requested, by the wall clock of the caller that requested it.
    pub first_seen_at: Option<SystemTime>,
    /// When its outcome was stored, by the wall clock of the caller that stored it.
    pub settled_at: Option<SystemTime>,
    /// The time until which the record counts.
    pub kept_until: Option<SystemTime>,
    /// Why the work was last [reset](crate::operator::Operator::reset).
    pub reset_reason: Option<String>,
}

/// How far idempotent work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnceState {
    /// A caller does the work, or an attempt did not finish and left it for the next attempt.
    Open,
    /// The work was done.
    Done,
    /// The work failed permanently, and is not retried.
    Failed,
}

impl fmt::Debug for OnceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the failure, because it is the caller's data and does not belong in logs.
        f.debug_struct("OnceStatus")
            .field("state", &self.state)
            .field("attempts", &self.attempts)
            .field("first_seen_at", &self.first_seen_at)
            .field("settled_at", &self.settled_at)
            .field("kept_until", &self.kept_until)
            .field("reset_reason", &self.reset_reason)
            .finish_non_exhaustive()
    }
}

#[doc(hidden)]
impl From<OnceRecord> for OnceStatus {
    fn from(record: OnceRecord) -> Self {
        let (outcome, settled_at) = record.settled.unzip();
        let (state, failure) = match outcome {
            None => (OnceState::Open, None),
            Some(StoredOutcome::Done(_)) => (OnceState::Done, None),
            Some(StoredOutcome::Failed(failure)) => (OnceState::Failed, Some(failure)),
        };
        Self {
            state,
            attempts: record.attempts,
            failure,
            first_seen_at: from_epoch_millis(record.first_seen),
            settled_at: settled_at.and_then(from_epoch_millis),
            kept_until: from_epoch_millis(record.kept_until),
            reset_reason: record.reset_reason,
        }
    }
}

pub(super) async fn read(engine: &Engine, name: &LockKey, key: LockKey) -> Result<Option<OnceStatus>, Error> {
    engine.settings.check_key(&key)?;
    let call = async |port: &mut EnginePort<'_>| protocol::peek_once(port, &engine.settings, &key).await;
    let outcome = |record: &Option<_>| if record.is_some() { "found" } else { "no row" };
    let record = engine.run_alone(&Span::none(), ("peek", Operation::Read, name), call, outcome).await?;
    Ok(record.map(OnceStatus::from))
}
