use super::{Function, KEY, deps, order, order_with};
use crate::handler;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, locks_answered, rfc3339};
use lambda_lock_local::gateway::Conduct;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::Notify;

#[tokio::test]
async fn work_that_fails_releases_the_attempt_and_the_next_call_charges() {
    let function = Function::start().await;
    for step in ["reserve", "charge", "record"] {
        let failed = function.call(order_with(json!({ "simulate": { "failAt": step } }))).await;
        assert_failure(failed, "WorkFailed", &format!("{step} failed, as the event asked for"));
        assert!(function.is_open().await, "{step}");
    }
    assert_eq!(function.charged(), (1, 1));
    let answer = function.call(order()).await.unwrap();
    assert_eq!((&answer["replayed"], function.charged()), (&json!(false), (2, 1)));
}

#[tokio::test]
async fn nothing_is_simulated_unless_the_environment_says_so() {
    for value in ["", "false"] {
        let function = Function::with(&[("ALLOW_SIMULATE", value)]).await;
        for simulate in [json!({}), json!({ "crashAt": "charge" })] {
            let refused = function.call(order_with(json!({ "simulate": simulate }))).await;
            assert_failure(refused, "InvalidRequest", "simulate is for demonstrations and tests");
        }
        assert_eq!((function.charged(), function.order("o-1").await), ((0, 0), None));
        assert_eq!(function.call(order()).await.unwrap()["replayed"], false);
    }
}

#[tokio::test]
async fn failed_work_reports_a_free_attempt_only_when_it_was_released() {
    let function = Function::start().await;
    let failed = function.call(order_with(json!({ "simulate": { "failAt": "charge" } }))).await;
    assert_failure(failed, "WorkFailed", "the lock is free again: charge failed");

    // The gateway refuses the charge only after the lock table is deleted.
    let (asked, hears) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (asks, gone) = (asked.clone(), hears.clone());
    function.gateway.decide(move |_| {
        asks.notify_one();
        Conduct::Refuses(if gone.load(Ordering::SeqCst) { 402 } else { 503 })
    });
    let spoils = async {
        asked.notified().await;
        let ends = function.server.row(KEY).await.unwrap()["leaseEndsAt"].as_n().unwrap().parse().unwrap();
        function.server.drop_table("locks").await;
        hears.store(true, Ordering::SeqCst);
        UNIX_EPOCH + Duration::from_millis(ends)
    };
    let (failed, ends) = tokio::join!(function.call(order()), spoils);
    let ends = rfc3339(ends);
    assert_failure(failed, "WorkFailed", &format!("free at the latest when its lease ends, at {ends}: the payment"));
}

#[tokio::test]
async fn a_result_that_was_not_stored_reports_when_the_lease_ends() {
    let function = Function::start().await;
    function.gateway.decide(|_| Conduct::Calls("x".repeat(500_000)));
    assert_failure(function.call(order()).await, "WorkFailed", "free at the latest when its lease ends, at 20");
    assert!(function.is_open().await);
}

#[tokio::test]
async fn a_charge_id_that_is_too_large_to_be_stored_is_failed_work_and_nothing_is_recorded() {
    let function = Function::start().await;
    function.gateway.decide(|_| Conduct::Calls("x".repeat(500_000)));
    assert_failure(function.call(order()).await, "WorkFailed", "bytes");
    assert!(function.is_open().await);
    assert!(!function.order("o-1").await.unwrap().contains_key("chargeId"));
}

#[tokio::test]
async fn an_invocation_without_time_left_is_lock_unknown() {
    let function = Function::start().await;
    assert_failure(function.call_within(order(), -1.0).await, "LockUnknown", "has no time left");
}

#[tokio::test]
async fn an_error_of_the_tables_is_reported_by_name() {
    let function = Function::start().await;
    function.server.drop_table("orders").await;
    assert_failure(function.call(order()).await, "LockTableError", "of your own");
    let server = DynamoDb::empty().await;
    let deps = deps(&server, &[]).unwrap();
    assert_failure(handler(event(&order(), 30.0), &deps).await, "LockTableError", "cannot be used");
    let function = Function::start().await;
    function.server.put(&[("key", KEY), ("recordVersionNumber", "x"), ("ownerName", "y")]).await;
    assert_failure(function.call(order()).await, "InvalidRecord", "attempts");
}

#[tokio::test]
async fn denied_access_and_throttling_are_reported_by_name() {
    for (code, error_type) in
        [("AccessDeniedException", "LockTableError"), ("ProvisionedThroughputExceededException", "LockUnknown")]
    {
        let mut function = Function::start().await;
        function.deps.locks = locks_answered(400, code);
        assert_failure(function.call_within(order(), 1.2).await, error_type, "order/o-1");
    }
}

#[tokio::test]
async fn a_malformed_variable_stops_the_start_by_its_name() {
    let server = DynamoDb::empty().await;
    for (name, value, says) in [
        ("ORDERS_TABLE", "", "ORDERS_TABLE is not set"),
        ("PAYMENT_GATEWAY_URL", "pay.example.com", "PAYMENT_GATEWAY_URL is "),
        ("PAYMENT_GATEWAY_URL", "ftp://pay.example.com", "PAYMENT_GATEWAY_URL is "),
        ("PAYMENT_GATEWAY_URL", "https://", "PAYMENT_GATEWAY_URL is "),
        ("PAYMENT_GATEWAY_URL", "http://pay.example.com", "PAYMENT_GATEWAY_URL is "),
        ("PAYMENT_GATEWAY_URL", "http://localhost.example.com", "PAYMENT_GATEWAY_URL is "),
        ("PAYMENT_GATEWAY_URL", "http://10.0.0.1:8080", "PAYMENT_GATEWAY_URL is "),
        ("ALLOW_SIMULATE", "1", "ALLOW_SIMULATE is "),
    ] {
        let error = deps(&server, &[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(says), "{name}={value}: {error}");
    }
    for url in ["https://pay.example.com/v1/", "http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"] {
        assert!(deps(&server, &[("PAYMENT_GATEWAY_URL", url)]).is_ok(), "{url}");
    }
}

/// Lambda ends a function at its deadline. On other machines nobody does.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn steps_are_stopped_when_their_lease_ends_although_nobody_ends_the_function() {
    let function = Function::start().await;
    let slow = order_with(json!({ "simulate": { "stepMillis": 20_000 } }));
    let began = std::time::Instant::now();
    assert_failure(function.call_within(slow, 2.0).await, "WorkFailed", "the lease ended while the work ran");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(function.charged(), (0, 0));
    assert_eq!(function.call(order()).await.unwrap()["replayed"], false);
}
