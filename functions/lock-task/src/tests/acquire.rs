use super::{Function, acquire, names, with};
use lambda_lock_functions::test_support::{assert_failure, epoch_millis};
use lambda_lock_testkit::takes;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_free_lock_is_granted_with_the_documented_response() {
    let function = Function::start().await;
    let before = epoch_millis();
    let answer = function.answer(acquire("me")).await;
    assert_eq!(names(&answer), ["acquired", "lock"]);
    assert_eq!(answer["acquired"], true);
    let lock = &answer["lock"];
    assert_eq!(names(lock), ["fencingToken", "key", "leaseEndsAt", "leaseSeconds", "owner", "version"]);
    assert_eq!((&lock["key"], &lock["owner"]), (&json!("customer-7"), &json!("me")));
    assert_eq!(lock["leaseSeconds"].to_string(), "300");
    assert!((before + 300_000..=epoch_millis() + 300_000).contains(&lock["leaseEndsAt"].as_u64().unwrap()));
    let row = function.server.row("customer-7").await.unwrap();
    assert_eq!(row["fencingToken"].as_n().unwrap(), &lock["fencingToken"].to_string());
    assert_eq!(row["recordVersionNumber"].as_s().unwrap(), lock["version"].as_str().unwrap());
    assert_eq!(row["leaseDuration"].as_s().unwrap(), "300000");
}

#[tokio::test]
async fn a_held_lock_fails_by_name_unless_a_report_is_asked_for() {
    let function = Function::start().await;
    let lock = function.lock("somebody").await;
    for when_held in [json!({}), json!({ "whenHeld": "fail" })] {
        assert_failure(function.call(with(acquire("me"), when_held)).await, "LockHeld", "\"somebody\"");
    }
    let report = function.answer(with(acquire("me"), json!({ "whenHeld": "report" }))).await;
    assert_eq!(names(&report), ["acquired", "holder", "observation", "retryAfterSeconds"]);
    assert_eq!(report["acquired"], false);
    assert_eq!(report["holder"], json!({ "owner": "somebody", "leaseEndsAt": lock["leaseEndsAt"] }));
    let retry_after = report["retryAfterSeconds"].as_u64().unwrap();
    assert!((300..=303).contains(&retry_after), "{retry_after}");
}

#[tokio::test]
async fn additional_attributes_are_in_the_row_and_in_the_report_of_the_holder() {
    let function = Function::start().await;
    let attributes = json!({ "job": "nightly", "shard": 5, "part": -0.25 });
    let answer = function.answer(with(acquire("somebody"), json!({ "attributes": attributes }))).await;
    assert_eq!(names(&answer["lock"]), ["fencingToken", "key", "leaseEndsAt", "leaseSeconds", "owner", "version"]);
    let row = function.server.row("customer-7").await.unwrap();
    assert_eq!((row["job"].as_s().unwrap(), row["shard"].as_n().unwrap()), (&"nightly".to_owned(), &"5".to_owned()));

    let renew = json!({ "action": "renew", "lock": answer["lock"], "leaseSeconds": 300 });
    let renewed = function.answer(renew).await;
    let report = function.answer(with(acquire("me"), json!({ "whenHeld": "report" }))).await;
    assert_eq!(names(&report["holder"]), ["attributes", "leaseEndsAt", "owner"]);
    assert_eq!(report["holder"]["attributes"], attributes);

    function.answer(json!({ "action": "release", "lock": renewed["lock"] })).await;
    function.lock("me").await;
    let row = function.server.row("customer-7").await.unwrap();
    assert!(["job", "shard", "part", "attributeNames"].iter().all(|name| !row.contains_key(*name)), "{row:?}");
}

#[tokio::test]
async fn a_held_lock_can_fail_with_the_report_as_its_message() {
    let function = Function::start().await;
    function.lock("somebody").await;
    let ask = |when_held: &str| json!({ "whenHeld": when_held, "maxRetryAfterSeconds": 10, "observation": null });
    let report = function.answer(with(acquire("me"), ask("report"))).await;

    let failure = function.call(with(acquire("me"), ask("failWithReport"))).await.unwrap_err();

    assert_eq!(failure.error_type(), "LockHeld");
    let told: Value = serde_json::from_str(&failure.message()).unwrap();
    assert_eq!(told, report);
    assert_eq!(told["retryAfterSeconds"], 10);
}

#[tokio::test]
async fn retry_after_is_a_whole_number_of_at_least_one() {
    let function = Function::with(&[("LOCK_MAX_CLOCK_SKEW_MS", "0")]).await;
    function.answer(with(acquire("somebody"), json!({ "leaseSeconds": 0.4 }))).await;
    let report = function.answer(with(acquire("me"), json!({ "whenHeld": "report" }))).await;
    assert_eq!(report["retryAfterSeconds"].to_string(), "1");
}

#[tokio::test]
async fn leases_are_decimal_seconds_rounded_up_to_milliseconds() {
    let function = Function::start().await;
    for (asked, answered) in
        [(json!(1.5), "1.5"), (json!(0.0001), "0.001"), (json!(2.00001), "2.001"), (json!(7.0), "7")]
    {
        let answer = function.answer(with(acquire("me"), json!({ "leaseSeconds": asked, "reclaim": true }))).await;
        assert_eq!(answer["lock"]["leaseSeconds"].to_string(), answered);
    }
}

#[tokio::test]
async fn the_same_owner_text_on_a_peers_row_is_held() {
    let function = Function::start().await;
    let peer =
        [("key", "customer-7"), ("ownerName", "me"), ("leaseDuration", "20000"), ("recordVersionNumber", "b2c6")];
    function.server.put(&peer).await;
    let report = function.answer(with(acquire("me"), json!({ "whenHeld": "report" }))).await;
    assert_eq!(report["holder"], json!({ "owner": "me", "leaseEndsAt": null }));
    assert_eq!(report["retryAfterSeconds"], 21);
}

#[tokio::test]
async fn data_travels_from_holder_to_holder() {
    let function = Function::start().await;
    let lock = function.answer(with(acquire("first"), json!({ "data": "page 7" }))).await["lock"].clone();
    assert_eq!(lock["data"], "page 7");
    function.answer(json!({ "action": "release", "lock": lock })).await;
    assert_eq!(function.lock("second").await["data"], "page 7");
}

#[tokio::test]
async fn the_row_names_the_execution_until_the_release() {
    let function = Function::start().await;
    let arn = "arn:aws:states:eu-central-1:123456789012:execution:orders:7";
    let lock = function.answer(with(acquire("me"), json!({ "execution": arn }))).await["lock"].clone();
    assert_eq!(lock.get("workflow"), None, "the workflow is in the row and not in the response");
    assert_eq!(function.server.row("customer-7").await.unwrap()["workflow"].as_s().unwrap(), arn);
    let renewed = function.answer(json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })).await;
    assert_eq!(renewed["lock"].get("workflow"), None);
    assert_eq!(function.server.row("customer-7").await.unwrap()["workflow"].as_s().unwrap(), arn);
    assert_eq!(
        function.answer(json!({ "action": "release", "lock": renewed["lock"] })).await,
        json!({ "released": true })
    );
    assert!(!function.server.row("customer-7").await.unwrap().contains_key("workflow"));
}

#[tokio::test]
async fn waiting_gets_a_lock_that_is_released_meanwhile() {
    let function = Function::start().await;
    let lock = function.lock("somebody").await;
    let wait = with(acquire("me"), json!({ "waitSeconds": 5 }));
    let (release, waited) = tokio::join!(
        async {
            // Gives the waiter time for its first read.
            lambda_lock_functions::test_support::pause(Duration::from_millis(100)).await;
            function.call(json!({ "action": "release", "lock": lock })).await
        },
        function.call(wait)
    );
    assert_eq!(release.unwrap(), json!({ "released": true }));
    let waited = waited.unwrap();
    assert_eq!(waited["acquired"], true);
    assert_eq!(waited["lock"]["leaseSeconds"], 300, "the lease is longer than the invocation");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn a_wait_beyond_the_deadline_is_cut_and_not_refused() {
    takes(Duration::from_millis(300)..Duration::from_millis(1000), async || {
        let function = Function::start().await;
        function.lock("somebody").await;
        let request = with(acquire("me"), json!({ "waitSeconds": 3600, "whenHeld": "report" }));
        let started = Instant::now();
        let report = super::handler(super::event(&request, 1.0), &function.deps).await.unwrap();
        let took = started.elapsed();
        assert_eq!(report["acquired"], false);
        took
    })
    .await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn a_call_waits_no_longer_than_requested() {
    takes(Duration::from_millis(250)..Duration::from_millis(1000), async || {
        let function = Function::start().await;
        function.lock("somebody").await;
        let started = Instant::now();
        assert_failure(function.call(with(acquire("me"), json!({ "waitSeconds": 0.3 }))).await, "LockHeld", "somebody");
        started.elapsed()
    })
    .await;
}

#[tokio::test]
async fn a_carried_observation_proves_a_silent_holder_dead() {
    let function = Function::with(&[("LOCK_MAX_CLOCK_SKEW_MS", "off")]).await;
    function.lock("somebody").await;
    let ask = with(acquire("me"), json!({ "whenHeld": "report" }));
    let first = function.answer(with(ask.clone(), json!({ "observation": null, "waitedSeconds": 0 }))).await;
    let carry = |waited: f64| json!({ "observation": first["observation"], "waitedSeconds": waited });
    let not_yet = function.answer(with(ask.clone(), carry(314.0))).await;
    assert_eq!((&not_yet["acquired"], &not_yet["retryAfterSeconds"]), (&json!(false), &json!(1)));
    let dead = function.answer(with(ask, carry(316.0))).await;
    assert_eq!(dead["acquired"], true);
}

#[tokio::test]
async fn the_first_loop_of_a_state_machine_has_no_observation() {
    let function = Function::start().await;
    for nothing in [
        json!({ "observation": null }),
        json!({ "observation": null, "waitedSeconds": 0 }),
        json!({ "observation": null, "waitedSeconds": null }),
    ] {
        let again = with(acquire("me"), json!({ "reclaim": true }));
        assert_eq!(function.answer(with(again, nothing)).await["acquired"], true);
    }
}

#[tokio::test]
async fn an_acquire_works_without_a_known_deadline() {
    let function = Function::start().await;
    let mut event = super::event(&acquire("me"), 30.0);
    event.context.deadline = 0;
    assert_eq!(super::handler(event, &function.deps).await.unwrap()["acquired"], Value::Bool(true));
}
