//! Reads rows for all operations, and retries within the caller's time.

use super::call::Call;
use super::failure::Failure;
use super::instants::Instants;
use super::key::LockKey;
use super::port::Port;
use super::reply::RowRead;
use super::value::Item;

/// How many rows one request reads.
const MAX_ROWS: usize = 100;

/// Reads the rows of several locks, and retries within the caller's time. Returns each row with both clocks as they were
/// read after its response.
pub(super) async fn read_rows(
    port: &mut impl Port,
    call: &mut Call,
    keys: &[LockKey],
) -> Result<Vec<(Instants, Option<Item>)>, Failure> {
    let mut rows = Vec::with_capacity(keys.len());
    for keys in keys.chunks(MAX_ROWS) {
        let mut found: Vec<Option<(Instants, Option<Item>)>> = vec![None; keys.len()];
        loop {
            let unread: Vec<usize> = (0..keys.len()).filter(|index| found[*index].is_none()).collect();
            if unread.is_empty() {
                break;
            }
            let now = call.ready(port).await?;
            let asked = unread.iter().map(|index| keys[*index].clone()).collect();
            let (after, reply) = port.read_all(&now, asked).await;
            match reply {
                Ok(read) => {
                    call.answered();
                    for (index, row) in unread.into_iter().zip(read) {
                        found[index] = match row {
                            RowRead::Unread => None,
                            RowRead::Missing => Some((after, None)),
                            RowRead::Row(item) => Some((after, Some(item))),
                        };
                    }
                    if found.iter().any(Option::is_none) {
                        // DynamoDB leaves keys unprocessed when it throttles.
                        call.throttled();
                    }
                }
                Err(fault) => call.read_failed(fault)?,
            }
        }
        rows.extend(found.into_iter().flatten());
    }
    Ok(rows)
}

/// Reads the row of a lock in a call of its own.
pub(super) async fn row(port: &mut impl Port, key: &LockKey) -> Result<Option<Item>, Failure> {
    Ok(look(port, &mut Call::new(), key).await?.1)
}

/// Reads the row, and retries within the caller's time. Returns the row with both clocks as they were read after the
/// response.
pub(super) async fn look(
    port: &mut impl Port,
    call: &mut Call,
    key: &LockKey,
) -> Result<(Instants, Option<Item>), Failure> {
    loop {
        let now = call.ready(port).await?;
        let (after, reply) = port.read(&now, key.clone()).await;
        match reply {
            Ok(row) => return Ok((after, row)),
            Err(fault) => call.read_failed(fault)?,
        }
    }
}
