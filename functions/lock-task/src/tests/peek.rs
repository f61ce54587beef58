use super::{Function, acquire, with};
use lambda_lock_functions::test_support::{assert_failure, pause};
use lambda_lock_testkit::peeked;
use serde_json::{Value, json};
use std::time::Duration;

fn peek() -> Value {
    json!({ "action": "peek", "key": "customer-7" })
}

#[tokio::test]
async fn a_lock_that_is_held_is_shown_with_its_holder_and_nothing_to_renew_it_with() {
    let function = Function::start().await;
    let held = with(acquire("me"), json!({ "execution": "arn:aws:states:eu-central-1:1:execution:m:e" }));
    let lock = function.answer(held).await["lock"].clone();

    let shown = function.answer(peek()).await;

    assert_eq!(shown["state"], "held");
    assert_eq!(shown["fencingToken"], lock["fencingToken"]);
    let holder = &shown["holder"];
    assert_eq!(holder["owner"], "me");
    assert_eq!(holder["leaseEndsAt"], lock["leaseEndsAt"]);
    assert_eq!(holder["leaseSeconds"], 300.0);
    assert_eq!(holder["execution"], "arn:aws:states:eu-central-1:1:execution:m:e");
    let (renewed, ends) = (holder["renewedAt"].as_u64().unwrap(), holder["leaseEndsAt"].as_u64().unwrap());
    assert!(renewed + 299_000 < ends && ends < renewed + 301_000, "{shown}");
    assert!(!shown.to_string().contains(lock["version"].as_str().unwrap()), "{shown}");
    assert_eq!(function.answer(json!({ "action": "release", "lock": lock })).await, json!({ "released": true }));
}

#[tokio::test]
async fn a_lock_that_nobody_holds_is_free() {
    let function = Function::start().await;
    assert_eq!(function.answer(peek()).await, json!({ "state": "free", "holder": null }));
    let lock = function.lock("me").await;
    function.answer(json!({ "action": "release", "lock": lock })).await;
    let free = json!({ "state": "free", "holder": null, "fencingToken": lock["fencingToken"], "breakReason": null,
        "freezeReason": null });
    assert_eq!(function.answer(peek()).await, free);
}

#[tokio::test]
async fn a_holder_whose_lease_is_long_over_is_dead_unless_no_wall_clock_counts() {
    for (skew, state) in [("100", "dead"), ("off", "held")] {
        let function = Function::with(&[("LOCK_MAX_CLOCK_SKEW_MS", skew)]).await;
        function.answer(with(acquire("me"), json!({ "leaseSeconds": 2 }))).await;
        assert_eq!(function.answer(peek()).await["state"], "held");
        pause(Duration::from_millis(2_200)).await;
        let shown = function.answer(peek()).await;
        assert_eq!((&shown["state"], &shown["holder"]["owner"]), (&json!(state), &json!("me")), "{skew}");
    }
}

#[tokio::test]
async fn why_a_lock_was_broken_is_shown() {
    let function = Function::start().await;
    function.lock("me").await;
    let locks = &function.deps.locks;
    locks.operator().break_lock("customer-7", &peeked(locks, "customer-7").await, "its host is gone").await.unwrap();
    let shown = function.answer(peek()).await;
    assert_eq!((&shown["state"], &shown["breakReason"]), (&json!("free"), &json!("its host is gone")));
}

#[tokio::test]
async fn owners_can_be_hidden_and_then_nothing_names_them() {
    let function = Function::with(&[("SHOW_OWNERS", "false")]).await;
    function.answer(with(acquire("secret"), json!({ "execution": "arn:secret" }))).await;
    let shown = function.answer(peek()).await;
    assert!(shown["holder"]["owner"].as_str().unwrap().starts_with("hidden-"));
    let locks = &function.deps.locks;
    locks.operator().break_lock("customer-7", &peeked(locks, "customer-7").await, "secret is gone").await.unwrap();
    function.lock("other").await;
    let later = function.answer(peek()).await;
    assert!(!shown.to_string().contains("secret") && !later.to_string().contains("secret"), "{shown} {later}");
}

#[tokio::test]
async fn a_malformed_peek_is_refused() {
    let function = Function::start().await;
    for (request, field) in [
        (json!({ "action": "peek" }), "key"),
        (json!({ "action": "peek", "key": "" }), "key"),
        (with(peek(), json!({ "owner": "me" })), "owner"),
        (with(peek(), json!({ "sortKey": "s" })), "sortKey"),
    ] {
        assert_failure(function.call(request).await, "InvalidRequest", field);
    }
}
