//! Idempotent work is done once for each key. The attempt that owns it stores its outcome.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod attempts;
mod effects;
mod faults;
mod payloads;
mod records;
mod results;
mod time;

use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::LockClient;
use lambda_lock::once::{Attempt, Once, Started};
use lambda_lock_testkit::{Fault, Table, millis, secs};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::sleep;

const LEASE: Duration = millis(21_000);
const DAY: Duration = secs(24 * 60 * 60);
/// The row of the work `order-42`.
const ROW: &str = "once/order-42";

#[derive(Clone, Serialize)]
struct Order {
    id: &'static str,
    amount: u64,
}

const ORDER: Order = Order { id: "order-42", amount: 1250 };

fn once(locks: &LockClient) -> Once<'_> {
    locks.once("order-42").lease(LEASE)
}

/// Returns the attempt that a call was granted.
async fn attempt(once: Once<'_>) -> Attempt {
    match once.start::<Value>().await.unwrap() {
        Started::Attempt(attempt) => attempt,
        Started::Replayed(result) => panic!("it was done already: {result}"),
    }
}

/// Returns the stored result that a call got.
async fn replayed(once: Once<'_>) -> Value {
    match once.start::<Value>().await.unwrap() {
        Started::Attempt(attempt) => panic!("it was not done yet: {attempt:?}"),
        Started::Replayed(result) => result,
    }
}

fn refused(id: &str) -> TransactWriteItem {
    let put = Put::builder().table_name("locks").item("key", AttributeValue::S(id.to_owned()));
    let put = put.condition_expression("attribute_exists(nowhere)").build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

/// Takes the work over when the lease of the last attempt has ended.
async fn next_attempt(table: &Table) -> Attempt {
    sleep(secs(100)).await;
    attempt(once(&table.process().locks("next"))).await
}

/// Returns faults after which a request is sent again.
fn unheard_or_lost() -> impl Iterator<Item = Fault> {
    Fault::applied_unheard().into_iter().chain(Fault::not_applied()).chain([Fault::throttled()])
}
