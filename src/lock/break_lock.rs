//! Break: releases a lock for its holder, because an operator decides so.

use super::release::ReleaseOutcome;
use crate::engine::Engine;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, Broken, LockKey, Operation};
use tracing::field::Empty;

pub(crate) async fn break_lock(
    engine: &Engine,
    key: LockKey,
    seen: &str,
    reason: &str,
) -> Result<ReleaseOutcome, Error> {
    engine.check_key(&key)?;
    engine.settings().check_reason(reason)?;
    let deadline = engine.deadline(LeasePolicy::None, None);
    let span = tracing::info_span!("lock_break", %key, attempts = Empty, waited_ms = Empty, outcome = Empty);
    let mut port = EnginePort::new(engine, &deadline, &span);
    let broken = protocol::break_lock(&mut port, &key, seen, reason).await;
    let broken = port.ended("break", (Operation::Break, &key), broken, |broken| format!("{broken:?}"));
    Ok(match broken? {
        Broken::Free => ReleaseOutcome::Released,
        Broken::Changed => ReleaseOutcome::AlreadyGone,
    })
}
