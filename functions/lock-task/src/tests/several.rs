use super::{Function, names, with};
use lambda_lock_functions::test_support::pause;
use serde_json::{Value, json};
use std::time::Duration;

fn set(owner: &str, keys: &[&str]) -> Value {
    json!({ "action": "acquire", "keys": keys, "owner": owner, "leaseSeconds": 300 })
}

fn place(owner: &str, permits: u64) -> Value {
    json!({ "action": "acquire", "key": "gateway", "permits": permits, "owner": owner, "leaseSeconds": 300 })
}

async fn is_free(function: &Function, key: &str) -> bool {
    function.server.row(key).await.is_none_or(|row| row.contains_key("isReleased"))
}

#[tokio::test]
async fn a_set_is_acquired_renewed_and_released_as_one_lock() {
    let function = Function::start().await;
    let answer = function.answer(set("me", &["a", "b"])).await;
    assert_eq!(names(&answer), ["acquired", "lock"]);
    let lock = answer["lock"].clone();
    assert_eq!(names(&lock), ["fencingToken", "leaseEndsAt", "locks"]);
    assert_eq!(lock["locks"][1]["key"], "b");
    for one in lock["locks"].as_array().unwrap() {
        assert_eq!((&one["fencingToken"], &one["leaseEndsAt"]), (&lock["fencingToken"], &lock["leaseEndsAt"]));
    }
    assert!(!is_free(&function, "a").await && !is_free(&function, "b").await);

    let renewed =
        function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 600 })).await["lock"].clone();
    assert_eq!(renewed["fencingToken"], lock["fencingToken"]);
    assert!(renewed["leaseEndsAt"].as_u64() > lock["leaseEndsAt"].as_u64());

    for _ in 0..2 {
        assert_eq!(function.answer(json!({ "action": "release", "lock": renewed })).await, json!({ "released": true }));
        assert!(is_free(&function, "a").await && is_free(&function, "b").await);
    }
}

#[tokio::test]
async fn a_lock_of_a_set_can_be_used_alone() {
    let function = Function::start().await;
    let lock = function.answer(set("me", &["a", "b"])).await["lock"].clone();
    let one = &lock["locks"][0];
    assert_eq!(function.answer(json!({ "action": "release", "lock": one })).await, json!({ "released": true }));
    assert!(is_free(&function, "a").await && !is_free(&function, "b").await);
    let lost = function.call(json!({ "action": "renew", "lock": lock, "leaseSeconds": 60 })).await.unwrap_err();
    assert_eq!(lost.error_type(), "LockLost");
    assert!(lost.message().contains("the lock a is no longer ours"), "{}", lost.message());
    assert!(is_free(&function, "b").await, "the rest of a lost set is released");
    let gone = function.answer(set("other", &["b"])).await;
    assert_eq!(gone["acquired"], true);
    let released = function.answer(json!({ "action": "release", "lock": lock })).await;
    assert_eq!(released, json!({ "released": false, "reason": "gone" }));
}

#[tokio::test]
async fn a_refused_set_names_its_holders_in_each_form_of_refusal() {
    let function = Function::with(&[("LOCK_KEY_PREFIX", "blue/")]).await;
    function.answer(set("somebody", &["b", "c"])).await;
    let refused = function.call(set("me", &["a", "b", "c"])).await.unwrap_err();
    assert_eq!(refused.error_type(), "LockHeld");
    let message = refused.message();
    assert!(message.starts_with("the locks b and c are held, ") && message.contains("by \"somebody\""), "{message}");
    assert!(is_free(&function, "blue/a").await);

    let report =
        function.answer(with(set("me", &["a", "b"]), json!({ "whenHeld": "report", "maxRetryAfterSeconds": 7 }))).await;
    assert_eq!(names(&report), ["acquired", "holder", "holders", "observation", "retryAfterSeconds"]);
    assert_eq!((&report["holder"]["owner"], &report["holder"]["index"]), (&json!("somebody"), &json!(1)));
    assert_eq!((report["holders"].as_array().unwrap().len(), &report["retryAfterSeconds"]), (1, &json!(7)));

    let failed =
        function.call(with(set("me", &["a", "b"]), json!({ "whenHeld": "failWithReport" }))).await.unwrap_err();
    let report: Value = serde_json::from_str(&failed.message()).unwrap();
    assert_eq!(report["holders"][0]["owner"], "somebody");
}

#[tokio::test]
async fn a_place_is_a_lock_with_its_number() {
    let function = Function::with(&[("LOCK_KEY_PREFIX", "blue/")]).await;
    let first = function.answer(with(place("me", 2), json!({ "data": "x" }))).await;
    let number = first["place"].as_u64().unwrap();
    assert_eq!(first["lock"]["key"], format!("gateway/{number}"));
    assert_eq!(first["lock"]["data"], "x");
    assert!(!is_free(&function, &format!("blue/gateway/{number}")).await);
    let second = function.answer(place("you", 2)).await;
    assert_eq!(second["place"], 1 - number);

    let full = function.call(place("third", 2)).await.unwrap_err();
    assert_eq!(full.error_type(), "LockHeld");
    assert!(
        full.message().starts_with("the semaphore gateway is full: all of its 2 places are held"),
        "{}",
        full.message()
    );
    let report = function.answer(with(place("third", 2), json!({ "whenHeld": "report" }))).await;
    assert_eq!(report["holders"].as_array().unwrap().len(), 2);
    assert!(report["holder"]["place"].as_u64().unwrap() < 2);

    let renewed = function.answer(json!({ "action": "renew", "lock": first["lock"], "leaseSeconds": 600 })).await;
    assert_eq!(
        function.answer(json!({ "action": "release", "lock": renewed["lock"] })).await,
        json!({ "released": true })
    );
    assert_eq!(function.answer(place("third", 2)).await["place"], number);
}

#[tokio::test]
async fn a_retried_task_gets_its_own_place_and_its_own_set_again() {
    let function = Function::start().await;
    let place_of_me = with(place("me", 9), json!({ "reclaim": true }));
    let first = function.answer(place_of_me.clone()).await;
    let again = function.answer(place_of_me).await;
    assert_eq!(first["place"], again["place"]);
    assert!(again["lock"]["fencingToken"].as_u64() > first["lock"]["fencingToken"].as_u64());

    let set_of_me = with(set("me", &["a", "b"]), json!({ "reclaim": true }));
    let first = function.answer(set_of_me.clone()).await["lock"].clone();
    let again = function.answer(set_of_me).await["lock"].clone();
    assert!(again["fencingToken"].as_u64() > first["fencingToken"].as_u64());
    let release = json!({ "action": "release", "lock": first, "reclaim": true });
    assert_eq!(function.answer(release).await, json!({ "released": true }));
    assert!(is_free(&function, "a").await && is_free(&function, "b").await);
}

#[tokio::test]
async fn what_was_observed_counts_in_the_next_request() {
    for request in [set("me", &["a", "b"]), place("me", 2)] {
        let function = Function::start().await;
        for owner in ["one", "two"] {
            let other = with(request.clone(), json!({ "owner": owner, "leaseSeconds": 2, "whenHeld": "report" }));
            function.answer(other).await;
        }
        let refused = function.answer(with(request.clone(), json!({ "whenHeld": "report" }))).await;
        assert_eq!(refused["acquired"], false, "{refused}");
        pause(Duration::from_millis(2_200)).await;
        let seen = json!({ "observation": refused["observation"], "waitedSeconds": 2.2 });
        let granted = function.answer(with(request, seen)).await;
        assert_eq!(granted["acquired"], true);
    }
}

#[tokio::test]
async fn what_was_observed_counts_for_a_key_that_begins_as_the_prefix_does() {
    for request in [set("me", &["blue/a"]), with(place("me", 1), json!({ "key": "blue/gateway" }))] {
        let function = Function::with(&[("LOCK_KEY_PREFIX", "blue/")]).await;
        function.answer(with(request.clone(), json!({ "owner": "one", "leaseSeconds": 300 }))).await;
        let refused = function.answer(with(request.clone(), json!({ "whenHeld": "report" }))).await;
        let seen = json!({ "observation": refused["observation"], "waitedSeconds": 400 });
        let granted = function.answer(with(request, seen)).await;
        assert_eq!(granted["acquired"], true);
    }
}

#[tokio::test]
async fn malformed_requests_are_refused_by_the_name_of_the_field() {
    let function = Function::start().await;
    let many: Vec<String> = (0..26).map(|index| format!("k-{index}")).collect();
    for (request, starts) in [
        (with(set("me", &["a"]), json!({ "key": "b" })), "keys is malformed: give it without key"),
        (with(set("me", &["a"]), json!({ "permits": 2 })), "keys is malformed: give it without key"),
        (with(set("me", &["a"]), json!({ "data": "x" })), "keys is malformed: data and attributes"),
        (with(set("me", &["a"]), json!({ "attributes": { "n": 1 } })), "keys is malformed: data and attributes"),
        (set("me", &[]), "keys is malformed: give 1 to 25"),
        (with(set("me", &[]), json!({ "keys": many })), "keys is malformed: give 1 to 25"),
        (with(set("me", &[]), json!({ "keys": "a" })), "keys is malformed: give a list"),
        (with(set("me", &[]), json!({ "keys": ["a", 7] })), "keys is malformed: give a list"),
        (set("me", &["a", "a"]), "keys is malformed: the key a was given twice"),
        (set("me", &["a", "once/b"]), "keys is malformed: no lock has"),
        (place("me", 0), "permits is malformed: give a number from 1 to 1000"),
        (place("me", 1001), "permits is malformed"),
        (with(place("me", 2), json!({ "key": "once/x" })), "key is malformed: no lock has"),
        (with(place("me", 2), json!({ "observation": {}, "waitedSeconds": 1 })), "observation is malformed"),
        (
            json!({ "action": "release", "lock": { "locks": [7], "fencingToken": 1, "leaseEndsAt": 1 } }),
            "lock.locks is malformed",
        ),
        (json!({ "action": "release", "lock": { "locks": [], "fencingToken": 1 } }), "lock.leaseEndsAt is missing"),
        (
            json!({ "action": "release", "lock": { "locks": [], "fencingToken": 1, "leaseEndsAt": 1 } }),
            "lock.locks is malformed: a call takes 1 to 25",
        ),
        (
            json!({ "action": "renew", "lock": { "locks": [], "fencingToken": 1, "leaseEndsAt": 1 }, "leaseSeconds": 1 }),
            "lock.locks is malformed: a call takes 1 to 25",
        ),
    ] {
        let refused = function.call(request.clone()).await.unwrap_err();
        assert_eq!(refused.error_type(), "InvalidRequest", "{request}: {}", refused.message());
        assert!(refused.message().starts_with(starts), "{request}: {}", refused.message());
    }
}

#[tokio::test]
async fn a_table_with_a_sort_key_takes_pairs() {
    let function = Function::with(&[("LOCK_SORT_KEY_ATTRIBUTE", "range")]).await;
    let keys = json!([{ "key": "a", "sortKey": "1" }, { "key": "a", "sortKey": "2" }]);
    let lock =
        function.answer(json!({ "action": "acquire", "keys": keys, "owner": "me", "leaseSeconds": 60 })).await["lock"]
            .clone();
    assert_eq!(lock["locks"][1]["sortKey"], "2");
    assert_eq!(function.answer(json!({ "action": "release", "lock": lock })).await, json!({ "released": true }));
    let refused = function.call(set("me", &["a"])).await.unwrap_err();
    assert!(refused.message().starts_with("keys is malformed: give a list of objects"), "{}", refused.message());
}
