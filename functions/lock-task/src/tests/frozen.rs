use super::{Function, acquire, with};
use lambda_lock_functions::test_support::assert_failure;
use serde_json::{Value, json};

const WHY: &str = "a migration, ticket 4711";

fn report(request: Value) -> Value {
    with(request, json!({ "whenHeld": "report", "maxRetryAfterSeconds": 60 }))
}

#[tokio::test]
async fn a_frozen_lock_is_refused_with_its_reason_until_it_is_thawed() {
    for hidden in ["true", "false"] {
        let function = Function::with(&[("SHOW_OWNERS", hidden)]).await;
        let locks = &function.deps.locks;
        let lock = function.lock("somebody").await;
        locks.operator().freeze("customer-7", WHY).await.unwrap();
        let lock =
            function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await["lock"].clone();
        function.answer(json!({ "action": "release", "lock": lock })).await;

        assert_failure(function.call(acquire("me")).await, "LockHeld", &format!("frozen by an operator ({WHY:?})"));
        let refused = function.answer(report(acquire("me"))).await;
        assert_eq!((&refused["acquired"], &refused["freezeReason"]), (&json!(false), &json!(WHY)));
        assert_eq!(refused["retryAfterSeconds"], 10, "not at once, although nobody holds it");
        let again = with(acquire("me"), json!({ "observation": refused["observation"], "waitedSeconds": 10 }));
        assert_eq!(function.answer(report(again)).await["acquired"], false);
        let failed = with(acquire("me"), json!({ "whenHeld": "failWithReport" }));
        assert_failure(function.call(failed).await, "LockHeld", &json!(WHY).to_string());
        let shown = function.answer(json!({ "action": "peek", "key": "customer-7" })).await;
        assert_eq!((&shown["state"], &shown["freezeReason"]), (&json!("free"), &json!(WHY)));

        locks.operator().thaw("customer-7").await.unwrap();
        assert_eq!(function.answer(report(acquire("me"))).await["acquired"], true);
    }
}

#[tokio::test]
async fn one_frozen_lock_refuses_a_set_and_says_why() {
    for hidden in ["true", "false"] {
        let function = Function::with(&[("SHOW_OWNERS", hidden)]).await;
        function.deps.locks.operator().freeze("b", WHY).await.unwrap();
        let set = json!({ "action": "acquire", "keys": ["a", "b"], "owner": "me", "leaseSeconds": 300 });
        assert_failure(function.call(set.clone()).await, "LockHeld", WHY);
        assert_eq!(function.answer(report(set)).await["freezeReason"], WHY);
    }
}

#[tokio::test]
async fn the_owner_of_a_frozen_lock_reclaims_it_while_it_holds_it() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    function.deps.locks.operator().freeze("customer-7", WHY).await.unwrap();
    let again = function.answer(with(acquire("me"), json!({ "reclaim": true }))).await;
    assert!(again["lock"]["fencingToken"].as_u64() > lock["fencingToken"].as_u64(), "{again}");
}

/// A reason is as long as an operator likes, and a response is not.
#[tokio::test]
async fn a_long_reason_leaves_the_report_in_its_message() {
    let function = Function::start().await;
    function.deps.locks.operator().freeze("customer-7", &"\u{1}".repeat(2_048)).await.unwrap();
    let failed = with(acquire("me"), json!({ "whenHeld": "failWithReport" }));
    let failure = function.call(failed).await.unwrap_err();
    let report: Value = serde_json::from_str(&failure.message()).unwrap();
    assert_eq!(report["retryAfterSeconds"], 10);
    assert!(!report["observation"].is_null());
    function.answer(report_of("customer-7")).await;
}

fn report_of(key: &str) -> Value {
    report(json!({ "action": "acquire", "key": key, "owner": "me", "leaseSeconds": 300 }))
}
