//! Another payload for the same key is an error of the caller.

use crate::{LEASE, ORDER, Order, ROW, attempt, once, replayed};
use lambda_lock::{Budget, ErrorKind};
use lambda_lock_testkit::{Table, case, millis, secs};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn another_payload_is_a_mismatch_whatever_became_of_the_first() {
    for became in ["running", "crashed", "given back", "done", "failed"] {
        let _case = case(became);
        let table = Table::new();
        let locks = table.process().locks("me");
        let first = attempt(once(&locks).payload(&ORDER)).await;
        match became {
            "given back" => drop(first.give_back().await.unwrap()),
            "done" => first.complete(&1).await.unwrap(),
            "failed" => first.fail(&1).await.unwrap(),
            _ => drop(first),
        }
        sleep(if became == "crashed" { secs(100) } else { millis(5) }).await;
        let before = table.row(ROW);

        let error = once(&locks).payload(&Order { amount: 1, ..ORDER }).start::<Value>().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::PayloadMismatch, "{error}");
        assert_eq!(table.row(ROW), before);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_payload_in_another_order_is_the_same_and_no_payload_is_not_compared() {
    let table = Table::new();
    let locks = table.process().locks("me");

    attempt(once(&locks).payload(&ORDER)).await.complete(&1).await.unwrap();
    assert_eq!(replayed(once(&locks).payload(&json!({"amount": 1250, "id": "order-42"}))).await, 1);
    assert_eq!(replayed(once(&locks)).await, 1);

    let open = attempt(locks.once("open").lease(LEASE)).await;
    assert_eq!(table.attribute("once/open", "payloadHash"), None);

    open.give_back().await.unwrap();
    sleep(millis(5)).await;
    attempt(locks.once("open").lease(LEASE).payload(&ORDER)).await.give_back().await.unwrap();
    sleep(millis(5)).await;

    let error = locks.once("open").lease(LEASE).payload(&json!(1)).start::<Value>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PayloadMismatch, "the first payload that was given counts: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_and_a_payload_that_is_no_json_are_refused_before_any_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
    for error in [
        locks.once("").lease(LEASE).start::<Value>().await.unwrap_err(),
        locks.once("k".repeat(2048)).lease(LEASE).start::<Value>().await.unwrap_err(),
        locks.once(("k", "sort")).lease(LEASE).start::<Value>().await.unwrap_err(),
        locks.once("k").lease(LEASE).payload(&odd).start::<Value>().await.unwrap_err(),
        locks.once("k").start::<Value>().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }

    let spent = process.budget(Duration::ZERO);
    let error = locks.once("k").within(&spent).start::<Value>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfTime, "no time remains: {error}");

    let unknown = Budget::unknown();
    assert!(locks.once("k").within(&unknown).start::<Value>().await.is_err());
    assert_eq!(process.take_sent().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_adds_an_optional_field_does_not_refuse_retries() {
    #[derive(Serialize)]
    struct WithNote {
        id: &'static str,
        amount: u64,
        note: Option<&'static str>,
    }
    let added = |note| WithNote { id: ORDER.id, amount: ORDER.amount, note };
    let table = Table::new();
    let locks = table.process().locks("me");
    attempt(once(&locks).payload(&ORDER)).await.complete(&1).await.unwrap();

    assert_eq!(replayed(once(&locks).payload(&added(None))).await, 1);
    let error = once(&locks).payload(&added(Some("gift"))).start::<Value>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PayloadMismatch, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_with_a_number_that_json_cannot_write_is_refused_before_any_request() {
    let process = Table::new().process();
    let locks = process.locks("me");
    for number in [f64::NAN, f64::INFINITY] {
        let error = once(&locks).payload(&json_of(number)).start::<Value>().await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("NaN"), "{error}");
    }
    assert_eq!(process.take_sent().len(), 0);
}

fn json_of(number: f64) -> BTreeMap<&'static str, Option<f64>> {
    BTreeMap::from([("amount", Some(number))])
}

#[tokio::test(start_paused = true)]
async fn a_map_with_numbers_as_keys_is_a_payload() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let prices = BTreeMap::from([(10, "a"), (9, "b")]);
    attempt(once(&locks).payload(&prices)).await.complete(&1).await.unwrap();

    assert_eq!(replayed(once(&locks).payload(&json!({"9": "b", "10": "a"}))).await, 1);
}
