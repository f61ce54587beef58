//! Freeze and thaw: an operator decides that nobody else is granted a lock for a while.

use super::peek::PeekedLock;
use crate::engine::Engine;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, LockKey, Operation, Record, from_epoch_millis};
use tracing::field::Empty;

/// The result of a [thaw](crate::operator::Operator::thaw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThawOutcome {
    /// Callers are granted the lock again.
    Thawed,
    /// The lock was not frozen.
    NotFrozen,
}

/// What an operator has seen before it decides. `None` where it decides whatever the row says.
pub(crate) type Seen<'a> = Option<Option<&'a PeekedLock>>;

/// Whether the lock still has the freeze that was seen, or none.
fn is_as_seen(seen: Seen<'_>, row: Option<&Record>) -> bool {
    match (seen, row) {
        (None, _) | (Some(None), None) => true,
        (Some(Some(seen)), Some(row)) => {
            seen.freeze_reason == row.freeze_reason
                && seen.freeze_changed_at == row.freeze_changed_at.and_then(from_epoch_millis)
        }
        _ => false,
    }
}

/// Whether somebody was granted the lock since it was seen free.
fn was_granted(seen: Seen<'_>, row: Option<&Record>) -> bool {
    seen.flatten().is_some_and(|seen| seen.released) && row.is_some_and(|row| !row.released)
}

pub(crate) async fn freeze(engine: &Engine, key: LockKey, seen: Seen<'_>, reason: &str) -> Result<bool, Error> {
    engine.check_lock_key(&key)?;
    engine.settings().check_reason(reason)?;
    let deadline = engine.deadline(LeasePolicy::None, None);
    let span = tracing::info_span!("lock_freeze", %key, attempts = Empty, waited_ms = Empty, outcome = Empty);
    let mut port = EnginePort::new(engine, &deadline, &span);
    let is_as_seen = |row: Option<&Record>| is_as_seen(seen, row) && !was_granted(seen, row);
    let frozen = protocol::freeze(&mut port, engine.settings(), &key, reason, is_as_seen).await;
    let outcome = |is_frozen: &bool| if *is_frozen { "frozen" } else { "changed" };
    port.ended("freeze", (Operation::Freeze, &key), frozen, outcome)
}

pub(crate) async fn thaw(engine: &Engine, key: LockKey, seen: Seen<'_>) -> Result<Option<ThawOutcome>, Error> {
    engine.check_lock_key(&key)?;
    let deadline = engine.deadline(LeasePolicy::None, None);
    let span = tracing::info_span!("lock_thaw", %key, attempts = Empty, waited_ms = Empty, outcome = Empty);
    let mut port = EnginePort::new(engine, &deadline, &span);
    let thawed = protocol::thaw(&mut port, engine.settings(), &key, |row| is_as_seen(seen, row)).await;
    let outcome = |was_frozen: &Option<bool>| match was_frozen {
        Some(true) => "thawed",
        Some(false) => "not frozen",
        None => "changed",
    };
    let was_frozen = port.ended("thaw", (Operation::Thaw, &key), thawed, outcome)?;
    Ok(was_frozen.map(|was_frozen| if was_frozen { ThawOutcome::Thawed } else { ThawOutcome::NotFrozen }))
}
