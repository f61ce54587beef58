//! Two requests use the same owner. The first one keeps the lock, unless the second one sends `reclaim`
//! because both are the same holder.

use super::{Function, acquire, with};
use lambda_lock_functions::test_support::assert_failure;
use serde_json::{Value, json};

fn reclaim(request: Value) -> Value {
    with(request, json!({ "reclaim": true }))
}

fn release(lock: &Value) -> Value {
    json!({ "action": "release", "lock": lock })
}

#[tokio::test]
async fn a_lock_of_a_living_holder_is_held_for_its_own_name_too() {
    let function = Function::start().await;
    let first = function.lock("billing").await;
    for says_no in [json!({}), json!({ "reclaim": false })] {
        let refused = function.call(with(acquire("billing"), says_no)).await;
        assert_failure(refused, "LockHeld", "this request's own owner");
    }
    let report = function.answer(with(acquire("billing"), json!({ "whenHeld": "report" }))).await;
    assert_eq!((&report["acquired"], &report["holder"]["owner"]), (&json!(false), &json!("billing")));
    let renewed = function.answer(json!({ "action": "renew", "lock": first, "leaseSeconds": 300 })).await;
    assert_eq!(renewed["lock"]["fencingToken"], first["fencingToken"], "the first holder still has its lock");
}

#[tokio::test]
async fn a_refusal_because_of_the_same_name_explains_reclaim() {
    let function = Function::start().await;
    function.lock("billing").await;
    assert_failure(function.call(acquire("billing")).await, "LockHeld", r#""reclaim": true"#);
    let by_another = function.call(acquire("shipping")).await;
    assert!(!by_another.unwrap_err().message().contains("reclaim"), "reclaim would not help here");
    // On the row of another client reclaim would not help either.
    let peer = [("key", "k-2"), ("ownerName", "billing"), ("leaseDuration", "20000"), ("recordVersionNumber", "b2c6")];
    function.server.put(&peer).await;
    let by_a_peer = function.call(with(acquire("billing"), json!({ "key": "k-2" }))).await;
    assert!(!by_a_peer.unwrap_err().message().contains("reclaim"));
}

#[tokio::test]
async fn with_reclaim_the_same_owner_gets_its_own_lock_again_as_a_new_grant() {
    let function = Function::start().await;
    let first = function.lock("me").await;
    let second = function.answer(reclaim(acquire("me"))).await["lock"].clone();
    assert!(second["fencingToken"].as_u64() > first["fencingToken"].as_u64());
    let renew = json!({ "action": "renew", "lock": first, "leaseSeconds": 300 });
    assert_failure(function.call(renew).await, "LockLost", "no longer ours");
}

#[tokio::test]
async fn reclaim_takes_no_other_owners_lock() {
    let function = Function::start().await;
    function.lock("somebody").await;
    assert_failure(function.call(reclaim(acquire("me"))).await, "LockHeld", "\"somebody\"");
    assert_failure(function.call(reclaim(acquire("some"))).await, "LockHeld", "\"somebody\"");
}

#[tokio::test]
async fn with_reclaim_the_same_owner_text_on_a_peers_row_is_held() {
    let function = Function::start().await;
    let peer =
        [("key", "customer-7"), ("ownerName", "me"), ("leaseDuration", "20000"), ("recordVersionNumber", "b2c6")];
    function.server.put(&peer).await;
    let report = function.answer(with(reclaim(acquire("me")), json!({ "whenHeld": "report" }))).await;
    assert_eq!(report["holder"], json!({ "owner": "me", "leaseEndsAt": null }));
    assert_eq!(report["retryAfterSeconds"], 21);
}

#[tokio::test]
async fn a_later_grant_of_the_same_owner_is_released_only_with_reclaim() {
    let function = Function::start().await;
    let first = function.lock("me").await;
    function.answer(reclaim(acquire("me"))).await;
    assert_eq!(function.answer(release(&first)).await, json!({ "released": false, "reason": "gone" }));
    assert!(!function.is_free().await);
    assert_eq!(function.answer(reclaim(release(&first))).await, json!({ "released": true }));
    assert!(function.is_free().await);
}

#[tokio::test]
async fn reclaim_releases_no_other_owners_lock() {
    let function = Function::start().await;
    let first = function.lock("me").await;
    function.answer(release(&first)).await;
    function.lock("somebody").await;
    assert_eq!(function.answer(reclaim(release(&first))).await, json!({ "released": false, "reason": "gone" }));
    assert!(!function.is_free().await);
}

/// Runs the script of the manual twice under the same name.
#[tokio::test]
async fn a_second_run_under_the_same_name_neither_takes_nor_releases_the_lock_of_the_first() {
    let function = Function::start().await;
    let first = function.lock("billing-2026-07").await;
    assert_failure(function.call(acquire("billing-2026-07")).await, "LockHeld", "billing-2026-07");
    // The first run releases its lock, a third run acquires it, and the first run's `finally` releases
    // once more.
    function.answer(release(&first)).await;
    let third = function.lock("billing-2026-07").await;
    assert_eq!(function.answer(release(&first)).await, json!({ "released": false, "reason": "gone" }));
    assert!(!function.is_free().await);
    assert_eq!(function.answer(release(&third)).await, json!({ "released": true }));
}
