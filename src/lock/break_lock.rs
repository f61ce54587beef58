//! Break: releases a lock for its holder, because an operator decides so.

use super::release::ReleaseOutcome;
use crate::engine::Engine;
use crate::engine::error::Error;
use crate::engine::operation::operation_span;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, Broken, LockKey, Operation};

pub(crate) async fn break_lock(
    engine: &Engine,
    key: LockKey,
    seen: &str,
    reason: &str,
) -> Result<ReleaseOutcome, Error> {
    engine.check_key(&key)?;
    engine.settings.check_reason(reason)?;
    let span = operation_span!("lock_break", %key);
    let call = async |port: &mut EnginePort<'_>| protocol::break_lock(port, &key, seen, reason).await;
    let broken = engine.run_alone(&span, ("break", Operation::Break, &key), call, |broken| format!("{broken:?}"));
    Ok(match broken.await? {
        Broken::Free => ReleaseOutcome::Released,
        Broken::Changed => ReleaseOutcome::AlreadyGone,
    })
}
