//! Requests per operation, as a table: what the README and the crate's docs say is what is sent.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock::{Lock, LockClient};
use lambda_lock_testkit::{Fault, Process, ROUND_TRIP, Sent, Table};
use serde_json::{Value, json};
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

#[tokio::test(start_paused = true)]
async fn a_renewal_after_one_that_changed_the_lease_takes_one_request_too() {
    for lengthened_by in ["renewal", "commit after it", "resume", "a copy elsewhere"] {
        let table = Table::new();
        let (process, other) = (table.process(), table.process());
        let locks = process.locks("me");
        let longer = Duration::from_secs(63);
        let mut lock = acquired(&locks).await;
        match lengthened_by {
            "renewal" => lock.renew().lease(longer).await.unwrap(),
            "commit after it" => {
                lock.renew().lease(longer).await.unwrap();
                lock.commit([]).await.unwrap();
            }
            "resume" => lock = locks.resume(lock.into_token()).lease(longer).await.unwrap(),
            _ => {
                let copy = other.locks("other").resume(lock.token()).lease(longer).await.unwrap();
                let _ = copy.into_token();
                lock.checkpoint().await.unwrap();
            }
        }
        process.take_sent();
        for _ in 0..3 {
            lock.checkpoint().await.unwrap();
            assert_eq!(counted(&process), (1, 0), "{lengthened_by}");
            assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("63000"), "{lengthened_by}");
            // 63 s / 1.05
            assert_eq!(lock.remaining(), Duration::from_secs(60) - ROUND_TRIP, "{lengthened_by}");
        }
        lock.commit([]).await.unwrap();
        assert_eq!(process.take_operations(), ["TransactWriteItems"], "{lengthened_by}");
        lock.release().await.unwrap();
        assert_eq!(counted(&process), (1, 0), "{lengthened_by}");
    }
}

/// A release ends a lease no earlier than a millisecond after its grant, which may be later than the clock says: a
/// client that comes back at once must not be refused for that.
#[tokio::test(start_paused = true)]
async fn whichever_way_a_lock_was_given_back_the_same_client_gets_it_again_with_one_request() {
    for way in ["release", "commit and release", "token", "workflow"] {
        for (latency, set_back) in [(Duration::ZERO, 0), (Duration::ZERO, 7), (Duration::from_millis(2), 10)] {
            let what = format!("{way}, {latency:?} each way, the clock {set_back} ms back");
            let table = Table::new();
            let process = table.process();
            process.set_latency(latency);
            let locks = process.locks("me");
            for round in 0..5 {
                let set_back = if round == 0 { set_back } else { 0 };
                let lock = locks.try_acquire("k").lease(LEASE).workflow("arn:1").await.unwrap().granted().unwrap();
                assert_eq!(process.take_operations(), ["UpdateItem"], "{what}");
                process.clock.jump_wall(-set_back);
                match way {
                    "release" => drop(lock.release().await.unwrap()),
                    "commit and release" => lock.commit_and_release([]).await.unwrap(),
                    "token" => drop(locks.release(lock.into_token()).await.unwrap()),
                    _ => {
                        let _ = lock.into_token();
                        locks.release_workflow("k", "arn:1").await.unwrap();
                    }
                }
                process.take_sent();
            }
        }
    }
}

/// What makes a read or a refusal worth something: a read that may be stale, or a refusal without the row, would
/// still be answered, and the embedded table is never stale.
#[tokio::test(start_paused = true)]
async fn every_read_is_consistent_and_every_write_has_a_condition_and_asks_for_the_row_that_refuses_it() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let acquire = || locks.try_acquire("k").lease(LEASE).workflow("arn:1");

    // Reads, each for its own reason.
    locks.peek("k").await.unwrap();
    locks.release_workflow("k", "arn:1").await.unwrap();
    process.next([Fault::AnswerLost]);
    let mut lock = acquire().await.unwrap().granted().unwrap();
    let (other, budget) = (locks.clone(), process.budget(Duration::from_secs(4)));
    assert!(other.acquire("k").within(&budget).await.unwrap_err().is_held());
    // Writes.
    lock.checkpoint().await.unwrap();
    lock.commit([]).await.unwrap();
    let lock = locks.resume(lock.into_token()).await.unwrap();
    let lock = locks.reclaim(lock.into_token()).lease(LEASE).await.unwrap();
    lock.commit_and_release([]).await.unwrap();
    let lock = acquire().await.unwrap().granted().unwrap();
    let _ = lock.into_token();
    locks.release_workflow("k", "arn:1").await.unwrap();
    acquire().await.unwrap().granted().unwrap().release().delete_row().await.unwrap();

    let sent = process.take_sent();
    let mut seen = std::collections::BTreeMap::new();
    for Sent { operation, body, .. } in &sent {
        *seen.entry(operation.as_str()).or_insert(0) += 1;
        let body: Value = serde_json::from_str(body).unwrap();
        let write = match operation.as_str() {
            "GetItem" => {
                assert_eq!(body["ConsistentRead"], true, "{body}");
                continue;
            }
            "TransactWriteItems" => {
                assert!(body["ClientRequestToken"].as_str().is_some_and(|token| token.len() == 32), "{body}");
                body["TransactItems"].as_array().unwrap().last().unwrap()["Update"].clone()
            }
            _ => body,
        };
        assert_eq!(write["ReturnValuesOnConditionCheckFailure"], "ALL_OLD", "{operation} {write}");
        assert!(write["ConditionExpression"].as_str().is_some_and(|text| !text.is_empty()), "{operation} {write}");
    }
    assert!(seen["GetItem"] >= 10 && seen["UpdateItem"] >= 8, "{seen:?}");
    assert_eq!((seen["TransactWriteItems"], seen["DeleteItem"]), (2, 1), "{seen:?}");
}
