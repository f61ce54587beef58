//! Peek: reads who holds a lock, and changes nothing.

use super::backoff::Retry;
use super::failure::Failure;
use super::instants::Instants;
use super::key::LockKey;
use super::once::OnceRecord;
use super::port::{Answer, Port, Rejection};
use super::record::Record;
use super::request::{Action, Request};
use super::settings::Settings;
use super::value::Item;

/// Reads a lock's row. Returns `None` where there is no row.
pub async fn peek(port: &mut impl Port, settings: &Settings, key: &LockKey) -> Result<Option<Record>, Failure> {
    let row = row(port, key).await?;
    Ok(row.map(|row| Record::read(row, &settings.schema)).transpose()?)
}

/// Reads the record of idempotent work. Returns `None` where there is no row.
pub async fn peek_once(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
) -> Result<Option<OnceRecord>, Failure> {
    let row = row(port, key).await?;
    Ok(row.map(|row| OnceRecord::read(row, &settings.schema)).transpose()?)
}

async fn row(port: &mut impl Port, key: &LockKey) -> Result<Option<Item>, Failure> {
    let mut retry = Retry::new();
    match look(port, &mut retry, key).await {
        Ok((_, row)) => Ok(row),
        Err(NotSeen::Rejected(rejection)) => Err(Failure::Rejected(rejection)),
        Err(NotSeen::OutOfTime) if retry.was_throttled() => Err(Failure::Throttled),
        Err(NotSeen::OutOfTime) => Err(Failure::OutcomeUnknown),
    }
}

/// Why an operation could not read its row.
pub(super) enum NotSeen {
    OutOfTime,
    Rejected(Rejection),
}

/// Reads the row, and retries within the caller's time. Returns the row with both clocks as they were read after the
/// response.
pub(super) async fn look(
    port: &mut impl Port,
    retry: &mut Retry,
    key: &LockKey,
) -> Result<(Instants, Option<Item>), NotSeen> {
    loop {
        retry.ready(port).await.map_err(|_| NotSeen::OutOfTime)?;
        let (after, answer) = port.send(Request::alone(key.clone(), Action::Peek)).await;
        match answer {
            Answer::Found(row) => return Ok((after, row)),
            Answer::Rejected(rejection) => return Err(NotSeen::Rejected(rejection)),
            Answer::Throttled => retry.throttled(),
            Answer::Unknown
            | Answer::Applied(_)
            | Answer::ConditionFailed(_)
            | Answer::Cancelled(_)
            | Answer::Refused(_)
            | Answer::FoundAll(_) => retry.after_pause(),
        }
    }
}
