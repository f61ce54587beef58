//! Peek: reads who holds a lock, and changes nothing.

use super::backoff::Retry;
use super::failure::Failure;
use super::instants::Instants;
use super::key::LockKey;
use super::once::{OnceRecord, is_settled};
use super::port::{Answer, Port, Rejection};
use super::record::Record;
use super::request::{Action, Request};
use super::settings::Settings;
use super::value::Item;

/// Reads a lock's row. Returns `None` where there is no row, or the record of idempotent work that has an outcome.
pub async fn peek(port: &mut impl Port, settings: &Settings, key: &LockKey) -> Result<Option<Record>, Failure> {
    let row = row(port, key).await?.filter(|row| !is_settled(row));
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

/// Reads the rows of several locks. Returns `None` where there is no row.
pub async fn peek_all(
    port: &mut impl Port,
    settings: &Settings,
    keys: &[LockKey],
) -> Result<Vec<Option<Record>>, Failure> {
    let rows = read_rows(port, &mut Retry::new(), keys).await?;
    let record = |(_, row): (_, Option<Item>)| Ok(row.map(|row| Record::read(row, &settings.schema)).transpose()?);
    rows.into_iter().map(record).collect()
}

/// How many rows one request reads.
const MOST_ROWS: usize = 100;

/// Reads the rows of several locks, and retries within the caller's time. Returns each row with both clocks as they were
/// read after its response.
pub(super) async fn read_rows(
    port: &mut impl Port,
    retry: &mut Retry,
    keys: &[LockKey],
) -> Result<Vec<(Instants, Option<Item>)>, Failure> {
    let mut rows = Vec::with_capacity(keys.len());
    for keys in keys.chunks(MOST_ROWS) {
        let mut found: Vec<Option<(Instants, Option<Item>)>> = vec![None; keys.len()];
        loop {
            let unread: Vec<usize> = (0..keys.len()).filter(|index| found[*index].is_none()).collect();
            if unread.is_empty() {
                break;
            }
            if retry.ready(port).await.is_err() {
                return Err(if retry.was_throttled() { Failure::Throttled } else { Failure::OutcomeUnknown });
            }
            let asked = unread.iter().map(|index| keys[*index].clone()).collect();
            let (after, answer) = port.read_all(asked).await;
            match answer {
                Answer::FoundAll(answered) => {
                    retry.answered();
                    for (index, row) in unread.into_iter().zip(answered) {
                        found[index] = row.map(|row| (after, row));
                    }
                    if found.iter().any(Option::is_none) {
                        // DynamoDB leaves keys unprocessed when it throttles.
                        retry.throttled();
                    }
                }
                Answer::Rejected(rejection) => return Err(Failure::Rejected(rejection)),
                Answer::Throttled => retry.throttled(),
                _ => retry.after_pause(),
            }
        }
        rows.extend(found.into_iter().flatten());
    }
    Ok(rows)
}

pub(super) async fn row(port: &mut impl Port, key: &LockKey) -> Result<Option<Item>, Failure> {
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
            | Answer::InProgress
            | Answer::Applied(_)
            | Answer::ConditionFailed(_)
            | Answer::Cancelled(_)
            | Answer::Refused(_)
            | Answer::FoundAll(_) => retry.after_pause(),
        }
    }
}
