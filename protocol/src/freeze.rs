//! Freeze and thaw: an operator decides that nobody else is granted a lock for a while. Its holder may finish.
//!
//! ```text
//! Peek
//!  ├ it is no lock record, or no later
//!  │ change could follow .................. report the row
//!  ├ to thaw, and there is no row ......... not frozen
//!  └ anything else ........................ Freeze, or Thaw, after exactly the change that was seen
//!      ├ applied .......................... done
//!      ├ condition failed
//!      │   ├ the row shows this change .... done: an earlier copy of it was applied
//!      │   └ anything else ................ Peek again
//!      ├ throttled, or no response ........ the same write again
//!      └ rejected ......................... rejected, or unknown if an earlier attempt had no response
//! ```
//!
//! Once a change had no response, a failure of a later request is reported as unknown.
//!
//! Each change writes its time, which is larger than that of the change before, and which stays in the row. So a late copy
//! of a freeze is refused after the thaw, and a late copy of a thaw after the next freeze. That is why a lock that is as it
//! is wanted is written all the same: an earlier change without a response may still arrive. A grant, a renewal and a
//! release leave both attributes alone, and a frozen row is not deleted.

use super::break_lock::exactly;
use super::failure::Failure;
use super::key::LockKey;
use super::peek;
use super::port::Port;
use super::record::{InvalidRecord, Record};
use super::request::{Action, FrozenRow};
use super::schema;
use super::settings::Settings;
use super::value::{Item, Value};
use super::version::{Grant, Stamp, Version};

/// Freezes the lock for this reason.
pub async fn freeze(port: &mut impl Port, settings: &Settings, key: &LockKey, reason: &str) -> Result<(), Failure> {
    let mut is_unknown = false;
    loop {
        let (seen, at) = read(port, settings, key).await.map_err(|failure| unless_unknown(is_unknown, failure))?;
        let row = match &seen {
            Some(record) => FrozenRow::Seen(record.freeze_changed_at),
            None => FrozenRow::Missing(Version {
                grant: Grant::from_random(port.random()),
                stamp: Stamp::after(None, at, port.random_u64()),
            }),
        };
        let action = |_| Action::Freeze { row: row.clone(), at, reason: reason.to_owned() };
        if exactly(port, key, action, |row| shows(row, at, Some(reason)), &mut is_unknown).await? {
            return Ok(());
        }
    }
}

/// Thaws the lock. Returns whether it was frozen.
pub async fn thaw(port: &mut impl Port, settings: &Settings, key: &LockKey) -> Result<bool, Failure> {
    let mut is_unknown = false;
    loop {
        let (record, at) = read(port, settings, key).await.map_err(|failure| unless_unknown(is_unknown, failure))?;
        let Some(record) = record else { return Ok(false) };
        let seen = record.freeze_changed_at;
        if exactly(port, key, |_| Action::Thaw { seen, at }, |row| shows(row, at, None), &mut is_unknown).await? {
            return Ok(record.freeze_reason.is_some());
        }
    }
}

/// After a change without a response, a failure does not mean that nothing was changed.
fn unless_unknown(is_unknown: bool, failure: Failure) -> Failure {
    if is_unknown { Failure::OutcomeUnknown } else { failure }
}

/// Returns the row, and the time of the change that follows.
async fn read(port: &mut impl Port, settings: &Settings, key: &LockKey) -> Result<(Option<Record>, u64), Failure> {
    let row = peek::row(port, key).await?;
    if row.as_ref().is_some_and(|row| row.get(schema::KEPT_UNTIL).is_some()) {
        let found = "of idempotent work, which cannot be frozen".to_owned();
        return Err(InvalidRecord::of(key, &settings.schema, schema::KEPT_UNTIL, found).into());
    }
    let record = row.map(|row| Record::read_to_hold(row, &settings.schema)).transpose()?;
    let at = next(port, settings, key, record.as_ref())?;
    Ok((record, at))
}

/// The time of the change that follows. It leaves room for one after it.
fn next(port: &mut impl Port, settings: &Settings, key: &LockKey, seen: Option<&Record>) -> Result<u64, InvalidRecord> {
    let before = seen.and_then(|record| record.freeze_changed_at);
    let at = port.now().wall.written.max(before.map_or(0, |before| before.saturating_add(1)));
    if at == u64::MAX {
        let found = format!("{}, but must be smaller, so that later times can follow", before.unwrap_or_default());
        return Err(InvalidRecord::of(key, &settings.schema, schema::FREEZE_CHANGED_AT, found));
    }
    Ok(at)
}

/// Whether the row shows that this change was the last one.
fn shows(row: Option<&Item>, at: u64, reason: Option<&str>) -> bool {
    let Some(row) = row else { return false };
    let is_last = matches!(row.get(schema::FREEZE_CHANGED_AT), Some(Value::N(last)) if *last == at.to_string());
    let reason_of_row = match row.get(schema::FREEZE_REASON) {
        Some(Value::S(text)) => Some(text.as_str()),
        _ => None,
    };
    is_last && reason_of_row == reason
}
