//! One of several places: held of a semaphore, and one of several locks.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod changing;
mod full;
mod granting;
mod lost_answers;

use lambda_lock::{Error, Lock, Refusal, Tried};
use lambda_lock_testkit::{Process, Table, secs};
use serde_json::Value;
use std::time::Duration;

const LEASE: Duration = secs(21);

/// Returns the lock of a call that must be granted.
async fn granted(call: impl IntoFuture<Output = Result<Tried<Lock, Vec<Refusal>>, Error>>) -> Lock {
    match call.await {
        Ok(Tried::Granted(lock)) => lock,
        Ok(Tried::Refused(blocked)) => panic!("full: {blocked:?}"),
        Err(error) => panic!("not granted: {error:?}"),
    }
}

/// Another client holds all of these places for a minute.
async fn held_by_others(table: &Table, places: impl IntoIterator<Item = usize>) {
    let locks = table.process().locks("other");
    for place in places {
        let lock =
            lambda_lock_testkit::granted(locks.acquire(format!("gateway/{place}")).lease(secs(60)).try_once()).await;
        lock.save();
    }
}

/// How many places each look read.
fn looks(process: &Process) -> Vec<usize> {
    let keys = |sent: &lambda_lock_testkit::Sent| {
        let body: Value = serde_json::from_str(&sent.body).unwrap();
        body["RequestItems"]["locks"]["Keys"].as_array().map(Vec::len)
    };
    process.sent().iter().filter_map(keys).collect()
}
