//! Reads rows for all operations, and retries within the caller's time.

use super::backoff::Retry;
use super::failure::Failure;
use super::instants::Instants;
use super::key::LockKey;
use super::port::{Answer, Port, Rejection};
use super::request::{Action, Request};
use super::value::Item;

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

/// Reads the row of a lock, with retries of its own.
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
