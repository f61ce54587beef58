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
