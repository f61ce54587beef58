//! Another payload for the same key is an error of the caller.

use crate::{LEASE, ORDER, Order, ROW, attempt, once, replayed};
use lambda_lock::{Budget, LockClient};
use lambda_lock_testkit::{Table, millis, secs};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

mod another_payload_is_a_mismatch_whatever_became_of_the_first {
    use super::*;

    async fn assert_mismatch(table: &Table, locks: &LockClient) {
        let tampered = Order { amount: 1, ..ORDER };
        sleep(millis(5)).await;
        let before = table.row(ROW);

        let error = once(locks).payload(&tampered).start::<Value>().await.unwrap_err();

        assert!(error.is_payload_mismatch(), "{error}");
        assert_eq!(table.row(ROW), before);
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_is_running() {
        let table = Table::new();
        let locks = table.process().locks("me");
        let first = attempt(once(&locks).payload(&ORDER)).await;

        assert_mismatch(&table, &locks).await;
        drop(first);
    }

    #[tokio::test(start_paused = true)]
    async fn after_it_crashed() {
        let table = Table::new();
        let locks = table.process().locks("me");
        let crashed = attempt(once(&locks).payload(&ORDER)).await;
        sleep(secs(100)).await;

        assert_mismatch(&table, &locks).await;
        drop(crashed);
    }

    #[tokio::test(start_paused = true)]
    async fn after_it_was_given_back() {
        let table = Table::new();
        let locks = table.process().locks("me");
        attempt(once(&locks).payload(&ORDER)).await.give_back().await.unwrap();

        assert_mismatch(&table, &locks).await;
    }

    #[tokio::test(start_paused = true)]
    async fn after_it_was_done() {
        let table = Table::new();
        let locks = table.process().locks("me");
        attempt(once(&locks).payload(&ORDER)).await.complete(&1).await.unwrap();

        assert_mismatch(&table, &locks).await;
    }

    #[tokio::test(start_paused = true)]
    async fn after_it_failed() {
        let table = Table::new();
        let locks = table.process().locks("me");
        attempt(once(&locks).payload(&ORDER)).await.fail(&1).await.unwrap();

        assert_mismatch(&table, &locks).await;
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
    assert!(error.is_payload_mismatch(), "the first payload that was given counts: {error}");
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
        assert!(error.is_invalid_request(), "{error}");
    }

    let spent = process.budget(Duration::ZERO);
    let error = locks.once("k").within(&spent).start::<Value>().await.unwrap_err();
    assert!(error.is_out_of_time(), "no time remains: {error}");

    let unknown = Budget::unknown();
    assert!(locks.once("k").within(&unknown).start::<Value>().await.is_err());
    assert_eq!(process.take_sent().len(), 0);
}
