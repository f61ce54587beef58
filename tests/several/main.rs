//! Several locks: acquired together or in order, and held by one guard.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod commit;
mod granting;
mod handing_over;
mod holding;
mod in_order;
mod invalid;
mod lost_answers;
mod may_be_held;
mod one_time;
mod proven;
mod random;
mod refused;
mod waiting;

use lambda_lock::{Error, LockClient, LockSet, Tried};
use lambda_lock_testkit::{Fault, Process, Sent, Table, secs};
use serde_json::{Value, json};
use std::time::Duration;

const LEASE: Duration = secs(21);
/// How long a holder relies on its lease: 21 s / 1.05.
const BELIEVED: Duration = secs(20);

/// Acquires these locks, which must be free.
async fn acquired<const N: usize>(locks: &LockClient, keys: [&str; N]) -> LockSet {
    match locks.acquire_all(keys).lease(LEASE).try_once().await {
        Ok(Tried::Granted(set)) => set,
        Ok(Tried::Refused(blocked)) => panic!("blocked: {blocked:?}"),
        Err(error) => panic!("not granted: {error:?}"),
    }
}

/// DynamoDB cancels a transaction for these reasons, one for each item.
fn cancelled(codes: &[&str]) -> Fault {
    let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code})).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "scripted",
        "CancellationReasons": reasons,
    });
    Fault::Says(400, Box::leak(body.to_string().into_boxed_str()))
}

fn conflict() -> Fault {
    cancelled(&["TransactionConflict", "None"])
}

/// A lock of another owner, which is held for a minute.
async fn held_by_another(table: &Table, key: &str) -> lambda_lock::Lock {
    let other = table.process().locks("other");
    lambda_lock_testkit::granted(other.acquire(key).lease(secs(60)).owner("other").try_once()).await
}

/// The tokens of these rows.
fn tokens(table: &Table, keys: &[&str]) -> Vec<u64> {
    keys.iter().map(|key| table.number(key, "fencingToken")).collect()
}

/// The names of the keys that the error says are blocked.
fn blocked(error: &Error) -> Vec<String> {
    error.refusals().iter().map(|one| one.key.key().to_owned()).collect()
}

/// The names of the keys that the error says may be held.
fn may_be_held(error: &Error) -> Vec<&str> {
    error.may_be_held().iter().map(lambda_lock::LockKey::key).collect()
}

fn released(table: &Table, keys: &[&str]) -> Vec<bool> {
    keys.iter().map(|key| table.is_released(key)).collect()
}

fn operations(process: &Process) -> Vec<String> {
    process.take_operations()
}

fn content(sent: &Sent) -> Value {
    serde_json::from_str(&sent.body).unwrap()
}
