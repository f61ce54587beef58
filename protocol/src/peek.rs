//! Peek: reads who holds a lock, and changes nothing.

use super::call::Call;
use super::failure::Failure;
use super::key::LockKey;
use super::port::Port;
use super::read::{read_rows, row};
use super::record::{Record, is_settled};
use super::settings::Settings;
use super::value::Item;

/// Reads a lock's row. Returns `None` where there is no row, or the record of idempotent work that has an outcome.
pub async fn peek(port: &mut impl Port, settings: &Settings, key: &LockKey) -> Result<Option<Record>, Failure> {
    let row = row(port, key).await?.filter(|row| !is_settled(row));
    Ok(row.map(|row| Record::read(row, &settings.schema)).transpose()?)
}

/// Reads the rows of several locks. Returns `None` where there is no row.
pub async fn peek_all(
    port: &mut impl Port,
    settings: &Settings,
    keys: &[LockKey],
) -> Result<Vec<Option<Record>>, Failure> {
    let rows = read_rows(port, &mut Call::new(), keys).await?;
    let record = |(_, row): (_, Option<Item>)| Ok(row.map(|row| Record::read(row, &settings.schema)).transpose()?);
    rows.into_iter().map(record).collect()
}
