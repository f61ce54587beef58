//! Steps that most tests use: acquiring a lock, and a write that counts how often it was applied.

use crate::table::Table;
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use lambda_lock::{Error, Lock, LockClient, Tried, operator::PeekedLock};
use std::time::Duration;

/// Returns a duration of this many seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a duration of this many milliseconds.
pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Acquires the lock `k`, which must be free.
pub async fn acquired(locks: &LockClient, lease: Duration) -> Lock {
    granted(locks.acquire("k").lease(lease).try_once()).await
}

/// Reads the row of a lock. There must be one.
pub async fn peeked(locks: &LockClient, key: &str) -> PeekedLock {
    locks.operator().peek(key).await.unwrap().unwrap()
}

/// Returns the lock of a call that must be granted.
pub async fn granted(call: impl IntoFuture<Output = Result<Tried<Lock>, Error>>) -> Lock {
    match call.await {
        Ok(Tried::Granted(lock)) => lock,
        Ok(Tried::Refused(held)) => panic!("the lock is held: {held:?}"),
        Err(error) => panic!("the lock was not granted: {error:?}"),
    }
}

/// Returns a write that counts how often it was applied. The count is in the row `id` of the lock
/// table.
pub fn counted(id: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name("locks")
        .key("key", AttributeValue::S(id.to_owned()))
        .update_expression("ADD applied :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    TransactWriteItem::builder().update(update.build().unwrap()).build()
}

/// Returns how often a write of [`counted`] was applied.
pub fn applied(table: &Table, id: &str) -> u32 {
    table.attribute(id, "applied").map_or(0, |count| count.parse().unwrap())
}
