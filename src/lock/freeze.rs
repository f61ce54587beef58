//! Freeze and thaw: an operator decides that nobody else is granted a lock for a while.

use super::peek::PeekedLock;
use crate::engine::Engine;
use crate::engine::error::Error;
use crate::engine::operation::operation_span;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, LockKey, Operation, Record, from_epoch_millis};

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
    engine.settings.check_reason(reason)?;
    let span = operation_span!("lock_freeze", %key);
    let is_as_seen = |row: Option<&Record>| is_as_seen(seen, row) && !was_granted(seen, row);
    let call =
        async |port: &mut EnginePort<'_>| protocol::freeze(port, &engine.settings, &key, reason, is_as_seen).await;
    let outcome = |is_frozen: &bool| if *is_frozen { "frozen" } else { "changed" };
    engine.run_alone(&span, ("freeze", Operation::Freeze, &key), call, outcome).await
}

pub(crate) async fn thaw(engine: &Engine, key: LockKey, seen: Seen<'_>) -> Result<Option<ThawOutcome>, Error> {
    engine.check_lock_key(&key)?;
    let span = operation_span!("lock_thaw", %key);
    let call = async |port: &mut EnginePort<'_>| {
        protocol::thaw(port, &engine.settings, &key, |row| is_as_seen(seen, row)).await
    };
    let outcome = |was_frozen: &Option<bool>| match was_frozen {
        Some(true) => "thawed",
        Some(false) => "not frozen",
        None => "changed",
    };
    let was_frozen = engine.run_alone(&span, ("thaw", Operation::Thaw, &key), call, outcome).await?;
    Ok(was_frozen.map(|was_frozen| if was_frozen { ThawOutcome::Thawed } else { ThawOutcome::NotFrozen }))
}
