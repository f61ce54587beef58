//! Reset: allows idempotent work again that failed for good, because an operator decides so.
//!
//! ```text
//! Peek
//!  ├ failed for good ... Reset (exactly that record), as a Break is sent
//!  └ anything else ..... left alone
//! ```
//!
//! The record goes back to what it was before it was settled, and is released. So the next attempt is granted as after a
//! release, with a larger token, and what the failed attempt still sends is refused as after a release.

use super::break_lock::single_write;
use super::failure::Failure;
use super::key::LockKey;
use super::peek;
use super::port::Port;
use super::request::{Action, StoredOutcome};
use super::schema;
use super::value::{Item, Value};
use super::version::before_settled;

/// The result of resetting idempotent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkReset {
    /// The next attempt may begin.
    Open,
    /// The record does not say that the work failed for good, or it changed meanwhile.
    NotFailed,
}

/// Opens the work again if its record says that it failed for good.
pub async fn reset(port: &mut impl Port, key: &LockKey, reason: &str) -> Result<WorkReset, Failure> {
    let row = peek::row(port, key).await?;
    let text = |row: &Item, name| match row.get(name) {
        Some(Value::S(text)) => Some(text.clone()),
        _ => None,
    };
    let failed = row.as_ref().filter(|row| text(row, schema::STATE).as_deref() == Some(StoredOutcome::FAILED));
    let seen = failed.and_then(|row| text(row, schema::VERSION));
    let Some((seen, version)) = seen.and_then(|seen| Some((seen.clone(), before_settled(&seen)?))) else {
        return Ok(WorkReset::NotFailed);
    };
    let action = |ends_at_ms| Action::Reset {
        seen: seen.clone(),
        version: version.clone(),
        ends_at_ms,
        reason: reason.to_owned(),
    };
    // An earlier copy of this write was applied.
    let is_done = |row: Option<&Item>| row.and_then(|row| text(row, schema::VERSION)).is_some_and(|own| own == version);
    let is_open = single_write(port, key, action, is_done).await?;
    Ok(if is_open { WorkReset::Open } else { WorkReset::NotFailed })
}
