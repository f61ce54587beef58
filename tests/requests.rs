//! Requests per operation, as a table: what the README and the crate's docs say is what is sent.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{Lock, LockClient};
use lambda_lock_testkit::{Process, Table};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

/// Writes and reads since the last count.
fn counted(process: &Process) -> (usize, usize) {
    let counts = process.take_counts();
    let count = |operation: &str| counts.get(operation).copied().unwrap_or_default();
    let others = counts.keys().filter(|name| !["UpdateItem", "DeleteItem", "GetItem"].contains(&name.as_str()));
    assert_eq!(others.count(), 0, "{counts:?}");
    (count("UpdateItem") + count("DeleteItem"), count("GetItem"))
}

#[tokio::test(start_paused = true)]
async fn requests_per_operation() {
    let table = Table::new();
    let (process, other) = (table.process(), table.process());
    let (locks, others) = (process.locks("me"), other.locks("other"));
    let mut seen: Vec<(&str, (usize, usize))> = Vec::new();

    let mut lock = acquired(&locks).await;
    seen.push(("acquire a missing row", counted(&process)));
    lock.checkpoint().await.unwrap();
    seen.push(("checkpoint", counted(&process)));
    assert!(others.try_acquire("k").lease(LEASE).await.unwrap().granted().is_none());
    seen.push(("a refused try", counted(&other)));
    locks.peek("k").await.unwrap();
    seen.push(("peek", counted(&process)));
    lock.release().await.unwrap();
    seen.push(("release", counted(&process)));
    // Within the millisecond of a release, a Claim cannot be told from a delayed copy of an older one.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let lock = acquired(&locks).await;
    seen.push(("acquire a released row", counted(&process)));
    let lock = locks.resume(lock.into_token()).await.unwrap();
    seen.push(("resume", counted(&process)));
    let lock = locks.reclaim(lock.into_token()).lease(LEASE).await.unwrap();
    seen.push(("reclaim", counted(&process)));
    lock.release().delete_row().await.unwrap();
    seen.push(("release that deletes the row", counted(&process)));

    let _ = acquired(&locks).await.into_token();
    tokio::time::sleep(LEASE + Duration::from_millis(2001)).await;
    process.take_sent();
    let lock = acquired(&others).await;
    seen.push(("take over from the dead by wall clock", counted(&other)));
    lock.release().await.unwrap();

    table.put_java_row("k", "v1", LEASE);
    let refused = others.try_acquire("k").lease(LEASE).await.unwrap();
    let observation = refused.held().unwrap().observation.clone().and_waited(Duration::from_secs(21));
    other.take_sent();
    let lock = others.try_acquire("k").lease(LEASE).observation(observation).await.unwrap().granted().unwrap();
    seen.push(("take over from the dead by observation", counted(&other)));
    lock.release().await.unwrap();
    table.put_java_row("k", "v1", LEASE);
    table.set("k", json!({"isReleased": {"S": "1"}}));
    other.take_sent();
    let lock = acquired(&others).await;
    seen.push(("acquire a peer's released row", counted(&other)));
    lock.release().await.unwrap();

    assert_eq!(
        seen,
        [
            ("acquire a missing row", (1, 0)),
            ("checkpoint", (1, 0)),
            ("a refused try", (1, 0)),
            ("peek", (0, 1)),
            ("release", (1, 0)),
            ("acquire a released row", (1, 0)),
            ("resume", (1, 0)),
            ("reclaim", (1, 0)),
            ("release that deletes the row", (1, 0)),
            ("take over from the dead by wall clock", (1, 0)),
            ("take over from the dead by observation", (2, 0)),
            ("acquire a peer's released row", (2, 0)),
        ]
    );
}
