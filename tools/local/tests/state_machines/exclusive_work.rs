//! exclusive-work: acquires, works, renews, works and releases. It waits, fails and retries.

use crate::scene::{PATIENCE, POLL, Scene, actions, definition};
use lambda_lock::Budget;
use lambda_lock_local::authorize::Fate;
use lambda_lock_local::states::{Asked, Definition};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const MACHINE: &str = "exclusive-work";

#[tokio::test]
async fn acquiring_a_free_lock_and_releasing_it_are_one_state_and_one_request_each() {
    let Some(scene) = Scene::new().await else { return };
    let noted = scene.note_requests();
    let (execution, end) = scene.run("one", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let states = scene.engine.states(&execution).await.unwrap();
    assert_eq!(states, ["Lock", "FirstStep", "Renew", "SecondStep", "Unlock"]);
    let requests = noted.lock().unwrap().clone();
    let [lock, first, renew, second, unlock] = &requests[..] else { panic!("{requests:?}") };
    for of_the_lock in [lock, renew, unlock] {
        assert_eq!(of_the_lock, "lock-task UpdateItem");
    }
    assert_eq!((first.as_str(), second.as_str()), ("sample-work UpdateItem", "sample-work UpdateItem"));
    assert!(scene.lock("k").await.released);
    assert_eq!(scene.counter("k").await, (1, [execution.arn].into()));
}

#[tokio::test]
async fn a_second_execution_waits_and_carries_its_observation() {
    let Some(scene) = Scene::new().await else { return };
    let mut held = scene.hold_step("read");
    let machine = Definition::read(MACHINE).unwrap().with_lease(PATIENCE.as_secs_f64());
    let first = scene.engine.execute("first", &machine, &json!({ "key": "k" })).await.unwrap();
    held.until(1).await;
    let second = scene.engine.execute("second", &machine, &json!({ "key": "k" })).await.unwrap();
    scene.until(async || scene.looks(&second).await >= 2).await;
    drop(held);
    let end = scene.engine.until_end(&second, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.engine.until_end(&first, PATIENCE).await.unwrap().status, "SUCCEEDED");
    let states = scene.engine.states(&second).await.unwrap();
    assert_eq!(states[..4], ["Lock", "WaitForTurn", "Lock", "WaitForTurn"]);
    assert_eq!(scene.counter("k").await, (2, [first.arn.clone(), second.arn.clone()].into()));
    // The execution waited as long as the report said, and sent the observation of the report.
    let asked = scene.router.take_asked();
    let of_second = |asked: &&Asked| asked.request["action"] == "acquire" && asked.request["execution"] == second.arn;
    let looks: Vec<_> = asked.iter().filter(of_second).collect();
    assert!(looks.len() >= 2, "{looks:?}");
    assert_eq!(looks[0].request["observation"], json!(null));
    for pair in looks.windows(2) {
        let report: Value = serde_json::from_str(pair[0].answer["errorMessage"].as_str().unwrap()).unwrap();
        assert_eq!(pair[1].request["observation"], report["observation"]);
        let (waited, is_last) = (pair[1].began - pair[0].ended, pair[1].answer["acquired"] == true);
        if is_last && pair[1].request["waitedSeconds"] == 0 {
            // It was woken.
            continue;
        }
        assert_eq!(pair[1].request["waitedSeconds"], report["retryAfterSeconds"]);
        assert!(waited >= POLL, "a timeout of N s must count as N s: {waited:?}");
    }
}

#[tokio::test]
async fn every_failure_unlocks_first_and_keeps_its_name() {
    let Some(scene) = Scene::new().await else { return };
    for (name, key, simulate, error) in [
        ("fails-first", "a", json!({ "failAt": "read" }), "WorkFailed"),
        ("fails-second", "b", json!({ "failAt": "write" }), "WorkFailed"),
        ("crashes-first", "c", json!({ "crashAt": "read" }), "Runtime.ExitError"),
        ("crashes-second", "d", json!({ "crashAt": "write" }), "Runtime.ExitError"),
    ] {
        let (execution, end) = scene.run(name, MACHINE, json!({ "key": key, "simulate": simulate })).await;
        assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some(error)), "{name}: {end:?}");
        let states = scene.engine.states(&execution).await.unwrap();
        assert!(states.ends_with(&["UnlockAfterFailure".to_owned(), "Failed".to_owned()]), "{states:?}");
        assert!(scene.lock(key).await.released, "{name}");
        assert_eq!(scene.counter(key).await.0, 0);
    }
}

#[tokio::test]
async fn a_lock_that_another_caller_has_by_now_is_left_alone() {
    let Some(scene) = Scene::new().await else { return };
    let mut held = scene.hold_step("read");
    let machine = Definition::read(MACHINE).unwrap().with_lease(1.0);
    let execution = scene.engine.execute("slow", &machine, &json!({ "key": "k" })).await.unwrap();
    held.until(1).await;
    // The first step takes longer than the lease.
    let budget = Budget::lasting(PATIENCE).reserve(Duration::ZERO);
    let other = scene.locks().acquire("k").lease(PATIENCE).within(&budget).await.unwrap();
    drop(held);
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    let states = scene.engine.states(&execution).await.unwrap();
    assert_eq!(states, ["Lock", "FirstStep", "Renew", "UnlockAfterFailure", "Failed"]);
    assert!(!scene.lock("k").await.released, "the lock of the other holder must stay held");
    assert_eq!(scene.counter("k").await.0, 0);
    other.release().await.unwrap();
}

#[tokio::test]
async fn answers_that_get_lost_between_lambda_and_the_state_machine_change_nothing() {
    let Some(scene) = Scene::new().await else { return };
    // Loses the first response to each action of lock-task.
    let lost: [AtomicU32; 3] = Default::default();
    scene.router.lose(move |function, request| {
        let action = ["acquire", "renew", "release"].iter().position(|action| request["action"] == *action);
        function == "lock-task" && action.is_some_and(|action| lost[action].fetch_add(1, Ordering::SeqCst) == 0)
    });
    let (execution, end) = scene.run("one", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let asked = scene.router.take_asked();
    assert_eq!(actions(&asked), ["acquire", "acquire", "renew", "renew", "release", "release"]);
    // The same owner got its own lock again, as a new grant.
    assert!(asked[0].lost && asked[0].answer["lock"]["owner"] == asked[1].answer["lock"]["owner"]);
    assert!(asked[1].answer["lock"]["fencingToken"].as_u64() > asked[0].answer["lock"]["fencingToken"].as_u64());
    assert!(scene.lock("k").await.released);
    assert_eq!(scene.counter("k").await, (1, [execution.arn].into()));
}

#[tokio::test]
async fn a_lock_task_that_is_killed_during_an_acquire_is_retried() {
    let Some(scene) = Scene::new().await else { return };
    // DynamoDB applies the acquire and does not respond. The function is killed meanwhile.
    scene.sample.proxy.decide(|_| Fate::AnsweredAfter(PATIENCE));
    let execution = scene.engine.execute("one", &definition(MACHINE), &json!({ "key": "k" })).await.unwrap();
    scene.until_held("k").await;
    scene.sample.lambda.kill(scene.sample.lambda.environments("lock-task")[0]).unwrap();
    scene.sample.proxy.decide(|_| Fate::Answered);
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let asked = scene.router.take_asked();
    assert_eq!(asked[0].answer["errorType"], "Runtime.ExitError");
    assert_eq!(actions(&asked), ["acquire", "acquire", "renew", "release"]);
    assert!(scene.lock("k").await.released);
}

#[tokio::test]
async fn a_lock_that_a_java_holder_left_is_taken_over_without_a_wall_clock_and_without_sleeping_in_a_function() {
    let Some(scene) = Scene::with(&[("LOCK_MAX_CLOCK_SKEW_MS", "off")]).await else { return };
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let dynamodb = lambda_lock_local::client(scene.sample.dynamodb.endpoint());
    let row =
        dynamodb.put_item().table_name("LockTable").item("key", text("k")).item("ownerName", text("a Java client"));
    let row = row.item("leaseDuration", text("2000")).item("recordVersionNumber", text("b2c6a6e2"));
    row.send().await.unwrap();
    scene.warm_up().await;
    let started = Instant::now();
    let (_, end) = scene.run("one", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert!(
        started.elapsed() >= Duration::from_millis(2100),
        "it must take the lease and 5 %: {:?}",
        started.elapsed()
    );
    let asked = scene.router.take_asked();
    // Two waits of 1 s are shorter than 2 s and 5 %, and three are longer.
    assert_eq!(actions(&asked).iter().filter(|action| **action == "acquire").count(), 1 + 3);
    for asked in asked.iter().filter(|asked| asked.request["action"] == "acquire") {
        assert!(asked.ended - asked.began < Duration::from_secs(1), "an invocation waited: {asked:?}");
    }
}
