//! Commit: the caller's writes and the lock's in one transaction, applied once or not at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod and_release;
mod applied;
mod cancelled;
mod fencing;
mod in_progress;
mod unknown;

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use lambda_lock::{Budget, Lock};
use lambda_lock_testkit::{Process, Sent, Table, acquired, millis, secs};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

const LEASE: Duration = millis(21_000);

/// A lock table and a table of orders.
fn table() -> Table {
    let table = Table::new();
    table.call(
        "CreateTable",
        &json!({
            "TableName": "orders",
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        }),
    );
    table
}

/// Returns a write that counts how often it was applied.
fn counted(id: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name("orders")
        .key("id", AttributeValue::S(id.to_owned()))
        .update_expression("ADD applied :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    TransactWriteItem::builder().update(update.build().unwrap()).build()
}

/// Returns a write that is applied only if there is no such order yet.
fn created(id: &str) -> TransactWriteItem {
    let put = Put::builder()
        .table_name("orders")
        .item("id", AttributeValue::S(id.to_owned()))
        .item("applied", AttributeValue::N("1".to_owned()))
        .condition_expression("attribute_not_exists(id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    TransactWriteItem::builder().put(put.build().unwrap()).build()
}

/// Returns how often the write was applied.
fn applied(table: &Table, id: &str) -> u32 {
    let key = json!({"TableName": "orders", "Key": {"id": {"S": id}}, "ConsistentRead": true});
    let answer = table.call("GetItem", &key);
    answer["Item"]["applied"]["N"].as_str().map_or(0, |count| count.parse().unwrap())
}

fn forget(table: &Table, id: &str) {
    table.call("DeleteItem", &json!({"TableName": "orders", "Key": {"id": {"S": id}}}));
}

/// Returns the content of a request. The order of names in its JSON has no meaning.
fn content(sent: &Sent) -> Value {
    serde_json::from_str(&sent.body).unwrap()
}

/// Takes the lock over when its lease has ended.
async fn taken_by_another(table: &Table) -> Lock {
    sleep(secs(100)).await;
    let other = acquired(&table.process().locks("other"), LEASE).await;
    assert!(other.owner().starts_with("other/"), "{other:?}");
    other
}

async fn lock_within(process: &Process, lock: Lock, budget: &Budget) -> Lock {
    process.locks("me").resume(lock.save()).within(budget).await.unwrap()
}
