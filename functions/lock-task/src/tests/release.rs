use super::{Function, acquire, with};
use lambda_lock_functions::test_support::pause;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn releasing_frees_the_lock_and_can_be_repeated() {
    let function = Function::start().await;
    let release = json!({ "action": "release", "lock": function.lock("me").await });
    assert!(!function.is_free().await);
    for _ in 0..2 {
        assert_eq!(function.answer(release.clone()).await, json!({ "released": true }));
        assert!(function.is_free().await);
    }
}

#[tokio::test]
async fn a_lock_that_is_gone_is_no_error_and_its_new_holder_is_left_alone() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    let release = json!({ "action": "release", "lock": lock });
    function.answer(release.clone()).await;
    function.lock("somebody").await;
    assert_eq!(function.answer(release).await, json!({ "released": false, "reason": "gone" }));
    assert!(!function.is_free().await);
}

#[tokio::test]
async fn an_earlier_copy_releases_a_lock_that_was_renewed_since() {
    let function = Function::start().await;
    let lock = function.lock("me").await;
    function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 600 })).await;
    assert_eq!(function.answer(json!({ "action": "release", "lock": lock })).await, json!({ "released": true }));
}

#[tokio::test]
async fn an_expired_lease_can_still_be_released() {
    let function = Function::start().await;
    let lock = function.answer(with(acquire("me"), json!({ "leaseSeconds": 0.02 }))).await["lock"].clone();
    pause(Duration::from_millis(40)).await;
    assert_eq!(function.answer(json!({ "action": "release", "lock": lock })).await, json!({ "released": true }));
}
