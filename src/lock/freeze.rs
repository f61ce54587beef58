//! Freeze and thaw: an operator decides that nobody else is granted a lock for a while.

use crate::engine::Engine;
use crate::engine::call::Call;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use lambda_lock_protocol::{self as protocol, LockKey, Operation};
use tracing::field::Empty;

/// The result of a [thaw](crate::LockClient::thaw).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThawOutcome {
    /// Callers are granted the lock again.
    Thawed,
    /// The lock was not frozen.
    NotFrozen,
}

pub(crate) async fn freeze(engine: &Engine, key: LockKey, reason: &str) -> Result<(), Error> {
    engine.check_lock_key(&key)?;
    engine.settings().check_reason(reason)?;
    let deadline = engine.deadline(LeasePolicy::None, None);
    let span = tracing::info_span!("lock_freeze", %key, attempts = Empty, waited_ms = Empty, outcome = Empty);
    let mut call = Call::new(engine, &deadline, &span);
    let frozen = protocol::freeze(&mut call, engine.settings(), &key, reason).await;
    call.ended("freeze", (Operation::Freeze, &key), frozen, |()| "frozen")
}

pub(crate) async fn thaw(engine: &Engine, key: LockKey) -> Result<ThawOutcome, Error> {
    engine.check_lock_key(&key)?;
    let deadline = engine.deadline(LeasePolicy::None, None);
    let span = tracing::info_span!("lock_thaw", %key, attempts = Empty, waited_ms = Empty, outcome = Empty);
    let mut call = Call::new(engine, &deadline, &span);
    let thawed = protocol::thaw(&mut call, engine.settings(), &key).await;
    let outcome = |was_frozen: &bool| if *was_frozen { "thawed" } else { "not frozen" };
    let was_frozen = call.ended("thaw", (Operation::Thaw, &key), thawed, outcome)?;
    Ok(if was_frozen { ThawOutcome::Thawed } else { ThawOutcome::NotFrozen })
}
