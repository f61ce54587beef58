//! Requests per operation: the numbers in the README and in the crate's docs are the requests that are sent.

use crate::LEASE;
use lambda_lock_testkit::{Fault, Sent, Table, acquired, granted, millis, secs};
use serde_json::{Value, json};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn requests_per_operation() {
    let table = Table::new();
    let (process, other) = (table.process(), table.process());
    let (locks, others) = (process.locks("me"), other.locks("other"));
    let mut seen: Vec<(&str, (usize, usize))> = Vec::new();

    let mut lock = acquired(&locks, LEASE).await;
    seen.push(("acquire a missing row", process.take_writes_and_reads()));
    lock.checkpoint().await.unwrap();
    seen.push(("checkpoint", process.take_writes_and_reads()));
    assert!(others.acquire("k").lease(LEASE).try_once().await.unwrap().granted().is_none());
    seen.push(("a refused try", other.take_writes_and_reads()));
    locks.operator().peek("k").await.unwrap();
    seen.push(("peek", process.take_writes_and_reads()));
    lock.release().await.unwrap();
    seen.push(("release", process.take_writes_and_reads()));
    // Within the millisecond of a release, a Claim cannot be told from a delayed copy of an older one.
    sleep(millis(2)).await;
    let lock = acquired(&locks, LEASE).await;
    seen.push(("acquire a released row", process.take_writes_and_reads()));
    let lock = locks.resume(lock.save()).await.unwrap();
    seen.push(("resume", process.take_writes_and_reads()));
    let lock = locks.reclaim(lock.save()).lease(LEASE).await.unwrap();
    seen.push(("reclaim", process.take_writes_and_reads()));
    lock.release().await.unwrap();

    let _ = acquired(&locks, LEASE).await.save();
    sleep(LEASE + millis(2001)).await;
    process.take_sent();
    let lock = acquired(&others, LEASE).await;
    seen.push(("take over from the dead by wall clock", other.take_writes_and_reads()));
    lock.release().await.unwrap();

    table.put_java_row("k", "v1", LEASE);
    let refused = others.acquire("k").lease(LEASE).try_once().await.unwrap();
    let observation = refused.refused().unwrap().observation.clone().and_waited(secs(21));
    other.take_sent();
    let lock = granted(others.acquire("k").lease(LEASE).observation(observation).try_once()).await;
    seen.push(("take over from the dead by observation", other.take_writes_and_reads()));
    lock.release().await.unwrap();
    table.put_java_row("k", "v1", LEASE);
    table.set("k", json!({"isReleased": {"S": "1"}}));
    other.take_sent();
    let lock = acquired(&others, LEASE).await;
    seen.push(("acquire a peer's released row", other.take_writes_and_reads()));
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
            ("take over from the dead by wall clock", (1, 0)),
            ("take over from the dead by observation", (2, 0)),
            ("acquire a peer's released row", (2, 0)),
        ]
    );
}

/// The protocol needs consistent reads, and the row with each refusal. Other requests would also get responses,
/// and the embedded table is never stale, so only this test notices them.
#[tokio::test(start_paused = true)]
async fn every_read_is_consistent_and_every_write_has_a_condition_and_asks_for_the_row_that_refuses_it() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let acquire = || locks.acquire("k").lease(LEASE).workflow("arn:1").try_once();

    // Reads, for different reasons.
    locks.operator().peek("k").await.unwrap();
    locks.release_workflow("k", "arn:1").await.unwrap();
    process.next([Fault::AnswerLost]);

    let mut lock = granted(acquire()).await;
    let (other, budget) = (locks.clone(), process.budget(secs(4)));
    assert!(other.acquire("k").within(&budget).await.unwrap_err().is_held());

    // Writes.
    lock.checkpoint().await.unwrap();
    lock.commit([]).await.unwrap();
    let lock = locks.resume(lock.save()).await.unwrap();
    let lock = locks.reclaim(lock.save()).lease(LEASE).await.unwrap();
    lock.commit_and_release([]).await.unwrap();
    // The other caller has taken a ticket, and is gone. Nobody waits for it any longer.
    sleep(secs(5)).await;
    let lock = granted(acquire()).await;
    let _ = lock.save();
    locks.release_workflow("k", "arn:1").await.unwrap();
    sleep(secs(5)).await;
    granted(acquire()).await.release().await.unwrap();

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
    assert_eq!((seen["TransactWriteItems"], seen.len()), (2, 3), "{seen:?}");
}
