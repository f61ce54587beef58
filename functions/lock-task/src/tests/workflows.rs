//! What a state machine relies on: its `Wait` ends when the lock can be free, its waiting time counts,
//! and the row names the execution that holds the lock.

use super::{Function, acquire, with};
use lambda_lock_functions::test_support::{assert_failure, pause};
use serde_json::{Value, json};
use std::time::Duration;

const EXECUTION: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:7";

fn ask(owner: &str) -> Value {
    with(acquire(owner), json!({ "whenHeld": "report", "observation": null }))
}

/// Returns the next request, after a `Wait` state of this many seconds.
fn again(report: &Value, waited: f64) -> Value {
    with(ask("me"), json!({ "observation": report["observation"], "waitedSeconds": waited }))
}

async fn peer_row(function: &Function, lease: &str, version: &str) {
    let row =
        [("key", "customer-7"), ("ownerName", "a peer"), ("leaseDuration", lease), ("recordVersionNumber", version)];
    function.server.put(&row).await;
}

/// The lease of 20 s, and 5 % more for clock drift (the default).
const WATCHED: u64 = 21;

#[tokio::test]
async fn a_lock_that_a_java_or_go_holder_left_is_taken_over_after_one_wait() {
    for (lease, wall_clock) in [("20000", "2000"), ("20s", "2000"), ("20000", "off"), ("20s", "off")] {
        let function = Function::with(&[("LOCK_MAX_CLOCK_SKEW_MS", wall_clock)]).await;
        peer_row(&function, lease, "b2c6").await;
        let report = function.answer(ask("me")).await;
        assert_eq!(report["retryAfterSeconds"], WATCHED, "{lease}");
        let too_early = function.answer(again(&report, WATCHED as f64 - 0.5)).await;
        assert_eq!((&too_early["acquired"], &too_early["retryAfterSeconds"]), (&json!(false), &json!(1)), "{lease}");
        assert_eq!(function.answer(again(&report, WATCHED as f64)).await["acquired"], true, "{lease}");
    }
}

#[tokio::test]
async fn a_living_java_holder_is_watched_anew_after_each_heartbeat() {
    let function = Function::start().await;
    peer_row(&function, "20000", "b2c6").await;
    let report = function.answer(ask("me")).await;
    peer_row(&function, "20000", "77f1").await;
    let renewed = function.answer(again(&report, WATCHED as f64)).await;
    assert_eq!((&renewed["acquired"], &renewed["retryAfterSeconds"]), (&json!(false), &json!(WATCHED)));
}

#[tokio::test]
async fn the_times_of_short_waits_are_added() {
    let function = Function::start().await;
    peer_row(&function, "20000", "b2c6").await;
    let mut report = function.answer(with(ask("me"), json!({ "maxRetryAfterSeconds": 8.9 }))).await;
    for retry_after in [8, 5] {
        assert_eq!(report["retryAfterSeconds"], 8);
        report = function.answer(with(again(&report, 8.0), json!({ "maxRetryAfterSeconds": 8 }))).await;
        assert_eq!((&report["acquired"], &report["retryAfterSeconds"]), (&json!(false), &json!(retry_after)));
    }
    assert_eq!(function.answer(again(&report, 5.0)).await["acquired"], true);
}

#[tokio::test]
async fn a_wait_for_a_dead_holder_of_ours_ends_after_its_lease() {
    for wall_clock in ["300", "off"] {
        let function = Function::with(&[("LOCK_MAX_CLOCK_SKEW_MS", wall_clock)]).await;
        function.answer(with(acquire("somebody"), json!({ "leaseSeconds": 0.6 }))).await;
        let report = function.answer(ask("me")).await;
        assert_eq!(report["retryAfterSeconds"], 1);
        pause(Duration::from_secs(1)).await;
        assert_eq!(function.answer(again(&report, 1.0)).await["acquired"], true, "{wall_clock}");
    }
}

#[tokio::test]
async fn the_row_names_the_execution_that_holds_the_lock_now_and_no_other() {
    let function = Function::start().await;
    let workflow = async || {
        let row = function.server.row("customer-7").await.unwrap();
        row.get("workflow").map(|workflow| workflow.as_s().unwrap().clone())
    };
    // A retried task gets its own lock again. The row still names the execution.
    let own = json!({ "reclaim": true });
    for _ in 0..2 {
        function.answer(with(acquire("me"), json!({ "execution": EXECUTION, "reclaim": true }))).await;
        assert_eq!(workflow().await.as_deref(), Some(EXECUTION));
    }
    // The same owner acquires without an execution. Then the end of an execution does not release the
    // lock.
    let lock = function.answer(with(acquire("me"), own)).await["lock"].clone();
    assert_eq!(workflow().await, None);
    function.answer(json!({ "action": "release", "lock": lock })).await;
    assert_eq!(workflow().await, None);
}

#[tokio::test]
async fn owners_tell_redrives_and_map_items_of_one_execution_apart() {
    let function = Function::start().await;
    let owner = |attempt: &str| {
        with(acquire(&format!("{EXECUTION}/{attempt}")), json!({ "execution": EXECUTION, "reclaim": true }))
    };
    function.answer(owner("0/3")).await;
    for other in ["1/3", "0/4", "0"] {
        assert_failure(function.call(owner(other)).await, "LockHeld", "/0/3");
    }
    assert_eq!(function.answer(owner("0/3")).await["acquired"], true);
}
