//! Rows of other clients. Records of peers are understood, foreign and malformed rows are not
//! changed, and unknown attributes are kept.

use crate::LEASE;
use lambda_lock::{Dialect, ErrorKind};
use lambda_lock_testkit::{Table, acquired, case, granted, millis, secs};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_lock_record_is_reported_and_never_overwritten() {
    let cases: [(&str, Value); 10] = [
        ("recordVersionNumber", Value::Null),
        ("ownerName", Value::Null),
        ("leaseDuration", Value::Null),
        ("leaseDuration", json!({"S": "a while"})),
        ("leaseDuration", json!({"N": "20000"})),
        ("recordVersionNumber", json!({"N": "1"})),
        ("isReleased", json!({"BOOL": true})),
        ("data", json!({"S": "text"})),
        ("fencingToken", json!({"S": "seven"})),
        ("attributeNames", json!({"SS": ["team"]})),
    ];
    for (attribute, value) in cases {
        let _case = case(format!("{attribute}: {value}"));
        let table = Table::new();
        table.put_java_row("k", "v1", secs(1));
        let mut row = table.row("k").unwrap();
        match &value {
            Value::Null => drop(row.as_object_mut().unwrap().remove(attribute)),
            value => row[attribute] = value.clone(),
        }
        table.put(row.clone());
        let process = table.process();
        let locks = process.locks("me");

        let errors = [
            locks.acquire("k").lease(LEASE).try_once().await.map(drop).unwrap_err(),
            locks.acquire("k").within(&process.budget(secs(60))).await.map(drop).unwrap_err(),
            locks.operator().peek("k").await.map(drop).unwrap_err(),
            locks.release_workflow("k", "arn").await.map(drop).unwrap_err(),
        ];

        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error}");
            let text = error.to_string();
            assert!(text.contains(attribute) && text.contains(r#"key="k""#), "{text}");
        }
        assert_eq!(table.row("k"), Some(row));
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_row_of_ours_whose_token_is_no_number_is_an_invalid_record() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    acquired(&locks, LEASE).await.release().await.unwrap();
    table.set("k", json!({"fencingToken": {"S": "seven"}}));
    sleep(secs(1)).await;
    process.take_sent();

    let error = locks.acquire("k").lease(LEASE).try_once().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error}");
    assert!(error.to_string().contains("fencingToken"), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem"]);
}

#[tokio::test(start_paused = true)]
async fn attributes_that_we_do_not_know_are_kept_by_every_write() {
    let table = Table::new();
    table.put(json!({"key": {"S": "k"}, "ownerName": {"S": "java"}, "leaseDuration": {"S": "1000"},
        "recordVersionNumber": {"S": "v1"}, "isReleased": {"S": "1"}, "team": {"S": "billing"}, "tags": {"SS": ["a"]}}));
    let locks = table.process().locks("me");
    let mut lock = acquired(&locks, LEASE).await;
    lock.checkpoint().await.unwrap();
    let token = lock.save();
    let lock = locks.reclaim(token).lease(LEASE).await.unwrap();
    lock.release().await.unwrap();
    let lock = acquired(&locks, LEASE).await;

    lock.release().await.unwrap();

    let row = table.row("k").unwrap();
    assert_eq!((&row["team"], &row["tags"]), (&json!({"S": "billing"}), &json!({"SS": ["a"]})));
}

#[tokio::test(start_paused = true)]
async fn a_peers_released_row_takes_two_requests_and_its_token_a_maximum() {
    for (token, least) in [(None, 0), (Some(5_u64), 5), (Some(9_000_000_000_000), 9_000_000_000_000)] {
        let _case = case(format!("{token:?}"));
        let table = Table::new();
        let process = table.process();
        table.put_java_row("k", "v1", LEASE);
        table.set("k", json!({"isReleased": {"S": "1"}}));
        if let Some(token) = token {
            // Go copies this token forward, so it may be stale. It only enters a maximum.
            table.set("k", json!({"fencingToken": {"N": token.to_string()}}));
        }
        let now = process.clock.wall_millis();

        let lock = acquired(&process.locks("me"), LEASE).await;

        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
        assert!(lock.fencing_token() > least && lock.fencing_token() >= now, "{}", lock.fencing_token());
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn both_dialects_are_read_and_one_is_written() {
    for (dialect, written) in [(Dialect::Java, "90000"), (Dialect::Go, "1m30s")] {
        for lease in ["2000", "2s"] {
            let _case = case(format!("{dialect:?}, {lease}"));
            let table = Table::new();
            table.put_java_row("k", "v1", secs(2));
            table.set("k", json!({"leaseDuration": {"S": lease}}));
            let process = table.process();
            let locks = process.builder().dialect(dialect).build().unwrap();
            let started = Instant::now();
            let budget = process.budget(secs(60));

            let mut lock = locks.acquire("k").within(&budget).lease(secs(90)).await.unwrap();
            assert!(started.elapsed() >= millis(2_100) && started.elapsed() < secs(3));
            assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some(written));

            lock.checkpoint().await.unwrap();
            assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some(written));
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_resumed_by_a_client_of_the_other_dialect_keeps_the_rows_text() {
    let table = Table::new();
    let process = table.process();
    let go = process.builder().dialect(Dialect::Go).build().unwrap();
    let token = acquired(&go, LEASE).await.save();
    process.take_sent();

    let lock = process.locks("me").resume(token).await.unwrap();

    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("20s"));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peek_shows_the_holder_and_when_its_lease_began_and_ends() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    assert_eq!(locks.operator().peek("k").await.unwrap(), None);

    let now = std::time::UNIX_EPOCH + millis(process.clock.wall_millis());
    let lock = granted(locks.acquire("k").lease(LEASE).workflow("arn").data("d").try_once()).await;
    sleep(secs(3)).await;
    process.take_sent();

    let seen = locks.operator().peek("k").await.unwrap().unwrap();
    assert_eq!(process.take_operations(), ["GetItem"]);
    assert_eq!((seen.holder.as_str(), seen.released, seen.lease), (lock.owner(), false, LEASE));
    assert_eq!((seen.renewed_at, seen.lease_ends_at), (Some(now), Some(now + LEASE)));
    assert_eq!(seen.fencing_token, Some(lock.fencing_token()));
    assert_eq!((seen.workflow.as_deref(), seen.data.as_deref()), (Some("arn"), Some(&b"d"[..])));
    assert!(!format!("{seen:?} {lock:?}").contains("data"), "payloads do not get into logs");
    lock.release().await.unwrap();
    assert!(locks.operator().peek("k").await.unwrap().unwrap().released);

    table.put_java_row("k", "v1", LEASE);

    let seen = locks.operator().peek("k").await.unwrap().unwrap();
    assert_eq!((seen.renewed_at, seen.lease_ends_at, seen.workflow), (None, None, None));
}
