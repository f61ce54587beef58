//! Status: what the record of an idempotent work says, for people and dashboards.

use crate::engine::Engine;
use crate::engine::call::Call;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use crate::protocol::{self, LockKey, OnceRecord, Operation, StoredOutcome, from_epoch_millis};
use std::time::SystemTime;
use tracing::Span;

/// The record of an idempotent work, as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnceStatus {
    /// How far it has come.
    pub state: OnceState,
    /// How many attempts it has had.
    pub attempts: u64,
    /// When it was first asked for, by the wall clock of whoever asked.
    pub first_seen_at: Option<SystemTime>,
    /// When its outcome was stored, by the wall clock of whoever stored it.
    pub settled_at: Option<SystemTime>,
    /// Until when the record counts.
    pub kept_until: Option<SystemTime>,
}

/// How far an idempotent work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnceState {
    /// Somebody is doing it, or did not finish and left it for the next attempt.
    Open,
    /// It was done.
    Done,
    /// It failed for good.
    Failed,
}

impl From<OnceRecord> for OnceStatus {
    fn from(record: OnceRecord) -> Self {
        Self {
            state: match &record.settled {
                None => OnceState::Open,
                Some((StoredOutcome::Done(_), _)) => OnceState::Done,
                Some((StoredOutcome::Failed(_), _)) => OnceState::Failed,
            },
            attempts: record.attempts,
            first_seen_at: from_epoch_millis(record.first_seen),
            settled_at: record.settled.and_then(|(_, at)| from_epoch_millis(at)),
            kept_until: from_epoch_millis(record.kept_until),
        }
    }
}

pub(super) async fn read(engine: &Engine, name: &LockKey, key: LockKey) -> Result<Option<OnceStatus>, Error> {
    engine.settings().check_key(&key)?;
    let deadline = engine.deadline(LeasePolicy::None, None);
    let span = Span::none();
    let mut call = Call::new(engine, &deadline, &span);
    let record = protocol::peek_once(&mut call, engine.settings(), &key).await;
    let cause = call.end();
    let record = record.map_err(|failure| Error::of_failure(failure, Operation::Read, name, cause))?;
    Ok(record.map(OnceStatus::from))
}
