use super::{Function, KEY, deps, order, order_with};
use crate::handler;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, locks_answered};
use lambda_lock_local::gateway::Conduct;
use serde_json::json;

#[tokio::test]
async fn work_that_fails_gives_the_attempt_back_and_the_next_call_charges() {
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
async fn a_charge_id_that_is_too_large_to_be_stored_is_failed_work_and_nothing_is_recorded() {
    let function = Function::start().await;
    function.gateway.decide(|_| Conduct::Calls("x".repeat(500_000)));
    assert_failure(function.call(order()).await, "WorkFailed", "bytes");
    assert!(function.is_open().await);
    assert!(!function.order("o-1").await.unwrap().contains_key("chargeId"));
}

#[tokio::test]
async fn an_invocation_without_time_asks_for_another_one() {
    let function = Function::start().await;
    assert_failure(function.call_within(order(), -1.0).await, "LockUnknown", "has 0ns left");
}

#[tokio::test]
async fn what_is_wrong_with_the_tables_is_said_by_name() {
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
async fn denied_access_and_throttling_are_said_by_name() {
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
    ] {
        let error = deps(&server, &[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(says), "{name}={value}: {error}");
    }
    assert!(deps(&server, &[("PAYMENT_GATEWAY_URL", "https://pay.example.com/v1/")]).is_ok());
}
