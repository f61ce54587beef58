use super::{Function, acquire, names, with};
use lambda_lock_functions::test_support::{assert_failure, pause};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn renewing_answers_the_same_grant_with_a_later_end() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    let answer = function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 600 })).await;
    assert_eq!(names(&answer), ["lock"]);
    let renewed = &answer["lock"];
    assert_eq!(names(renewed), names(&lock));
    assert_eq!(renewed["fencingToken"], lock["fencingToken"]);
    assert_ne!(renewed["version"], lock["version"]);
    assert_eq!(renewed["leaseSeconds"].to_string(), "600");
    assert!(renewed["leaseEndsAt"].as_u64().unwrap() >= lock["leaseEndsAt"].as_u64().unwrap() + 300_000);
}

#[tokio::test]
async fn renewing_never_shortens_a_lease() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    let renewed = function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 1 })).await;
    assert_eq!(renewed["lock"]["leaseSeconds"], 300);
    assert!(renewed["lock"]["leaseEndsAt"].as_u64() >= lock["leaseEndsAt"].as_u64());
}

#[tokio::test]
async fn an_expired_lease_can_be_renewed_while_no_other_caller_was_granted_the_lock() {
    let function = Function::start().await;
    let lock = function.answer(with(acquire("me"), json!({ "leaseSeconds": 0.05 }))).await["lock"].clone();
    pause(Duration::from_millis(80)).await;
    let renewed = function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await;
    assert_eq!(renewed["lock"]["fencingToken"], lock["fencingToken"]);
}

#[tokio::test]
async fn the_data_of_the_answer_is_accepted_and_passed_on() {
    let function = Function::start().await;
    let lock = function.answer(with(acquire("me"), json!({ "data": "page 7" }))).await["lock"].clone();
    let renewed =
        function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await["lock"].clone();
    assert_eq!(renewed["data"], "page 7");
    assert_eq!(function.answer(json!({ "action": "release", "lock": renewed })).await, json!({ "released": true }));
    assert_eq!(function.server.row("customer-7").await.unwrap()["data"].as_b().unwrap().as_ref(), b"page 7");
}

#[tokio::test]
async fn a_lock_that_was_released_is_lost() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    function.answer(json!({ "action": "release", "lock": lock })).await;
    let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 });
    assert_failure(function.call(renew).await, "LockLost", "customer-7");
}

/// JSONata and JavaScript keep whole numbers up to 2⁵³.
#[tokio::test]
async fn a_large_fencing_token_that_was_rounded_on_its_way_is_recognised() {
    for key in [None, Some(("LOCK_HMAC_KEYS", "0123456789abcdef0123456789abcdef"))] {
        let function = Function::with(key.as_slice()).await;
        let lock = function.lock("earlier").await;
        function.answer(json!({ "action": "release", "lock": lock })).await;
        let large = aws_sdk_dynamodb::types::AttributeValue::N((1_u64 << 53).to_string());
        function.server.set("locks", ("key", "customer-7"), ("fencingToken", large)).await;
        let mut lock = function.lock("me").await;
        let token = lock["fencingToken"].as_u64().unwrap();
        assert!(token > 1 << 53 && token != (token as f64) as u64, "{lock}");

        lock["fencingToken"] = json!(token as f64);
        let renewed = function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await;
        assert_eq!(renewed["lock"]["fencingToken"], token);
        assert_eq!(renewed["lock"]["exactFencingToken"], token.to_string());

        let mut other = lock.clone();
        other["fencingToken"] = json!(5);
        let refused = function.call(json!({ "action": "release", "lock": other })).await;
        assert_failure(refused, "InvalidRequest", "lock.exactFencingToken is malformed");
        assert_eq!(function.answer(json!({ "action": "release", "lock": lock })).await, json!({ "released": true }));
    }
}
