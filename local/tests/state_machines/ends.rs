//! Executions that end without releasing their lock: stopped, timed out or redriven, with the event
//! and without it.

use crate::scene::{LEASE, PATIENCE, POLL, SKEW, Scene, definition, slow};
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::states::Execution;
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const MACHINE: &str = "exclusive-work";
/// How much two busy processors may add.
const SLACK: Duration = Duration::from_millis(2500);

/// Starts an execution and stops it in this state.
async fn stopped_in(scene: &Scene, name: &str, state: &str) -> Execution {
    let execution =
        scene.engine.execute(name, &definition(MACHINE), &slow("k", Duration::from_millis(700))).await.unwrap();
    let entered = async {
        while scene.engine.states(&execution).await.unwrap().last().map(String::as_str) != Some(state) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, entered).await.unwrap();
    scene.engine.stop(&execution).await.unwrap();
    assert_eq!(scene.engine.until_end(&execution, PATIENCE).await.unwrap().status, "ABORTED");
    execution
}

#[tokio::test]
async fn the_lock_of_a_stopped_execution_is_free_after_the_event() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    assert!(!scene.lock("k").await.released);
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    assert!(scene.lock("k").await.released);
    let (_, end) = scene.run("next", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
}

#[tokio::test]
async fn without_the_event_the_lock_of_a_stopped_execution_is_free_after_its_lease() {
    let Some(scene) = Scene::new().await else { return };
    stopped_in(&scene, "stopped", "FirstStep").await;
    let granted = Instant::now();
    let lock = scene.lock("k").await;
    let (_, end) = scene.run("next", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert!(granted.elapsed() < LEASE + SKEW + POLL + SLACK, "{:?}", granted.elapsed());
    let asked = scene.router.take_asked();
    let taken_over = asked.iter().filter(|asked| asked.answer["acquired"] == true).nth(1).unwrap();
    let token = taken_over.answer["lock"]["fencingToken"].as_u64();
    assert!(token > lock.fencing_token, "{token:?}");
}

#[tokio::test]
async fn an_execution_that_timed_out_is_cleaned_up_too() {
    let Some(scene) = Scene::new().await else { return };
    let timed = definition(MACHINE).with_timeout(1);
    let execution = scene.engine.execute("timed", &timed, &slow("k", Duration::from_millis(1500))).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "TIMED_OUT", "{end:?}");
    assert!(!scene.lock("k").await.released);
    assert_eq!(scene.clean_up(&execution, "TIMED_OUT").await, 1);
}

#[tokio::test]
async fn an_acquire_that_is_under_way_when_its_execution_is_stopped_is_caught_by_the_second_look() {
    let Some(scene) = Scene::new().await else { return };
    // The response to the first request is lost. The function sends another one after a second.
    let calls = AtomicU32::new(0);
    let first_write = move |call: &Call| call.caller == "lock-task" && calls.fetch_add(1, Ordering::SeqCst) == 0;
    scene.sample.proxy.decide(move |call| if first_write(call) { Fate::Swallowed } else { Fate::Answered });
    let execution = scene.engine.execute("stopped", &definition(MACHINE), &json!({ "key": "k" })).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    scene.engine.stop(&execution).await.unwrap();
    assert!(scene.locks().peek("k").await.unwrap().is_none(), "the acquire must not be applied yet");
    assert_eq!(scene.clean_up(&execution, "ABORTED").await, 1, "the second look must release the lock");
    assert!(scene.lock("k").await.released);
}

#[tokio::test]
async fn an_acquire_that_lands_after_the_clean_up_lasts_no_longer_than_its_lease() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    scene.clean_up(&stopped, "ABORTED").await;
    // A late invocation of the ended execution.
    let late = json!({
        "action": "acquire", "key": "k", "owner": format!("{}/0", stopped.arn), "execution": stopped.arn,
        "leaseSeconds": LEASE.as_secs(),
    });
    let landed = Instant::now();
    assert_eq!(scene.sample.ask("lock-task", &late).await.unwrap()["acquired"], true);
    let (_, end) = scene.run("next", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let asked = scene.router.take_asked();
    let granted = asked.iter().rfind(|asked| asked.answer["acquired"] == true).unwrap().ended - landed;
    assert!(granted > LEASE && granted < LEASE + SKEW + POLL + SLACK, "{granted:?}");
}

#[tokio::test]
async fn a_redriven_execution_continues_while_no_other_execution_has_worked() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = stopped_in(&scene, "stopped", "SecondStep").await;
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    assert_eq!(redriven.arn, stopped.arn);
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.engine.states(&redriven).await.unwrap(), ["SecondStep", "Unlock"]);
    assert_eq!(scene.counter("k").await, (1, [stopped.arn].into()));
}

#[tokio::test]
async fn a_redriven_step_runs_without_the_lock_that_was_cleaned_up_and_its_renewal_says_so() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    let states = scene.engine.states(&redriven).await.unwrap();
    assert_eq!(states, ["FirstStep", "Renew", "UnlockAfterFailure", "Failed"]);
    assert_eq!(scene.counter("k").await.0, 0);
}

#[tokio::test]
async fn a_redriven_execution_that_another_one_has_overtaken_writes_nothing_and_releases_nothing() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    scene.clean_up(&stopped, "ABORTED").await;
    let other =
        scene.engine.execute("other", &definition(MACHINE), &slow("k", Duration::from_millis(900))).await.unwrap();
    scene.until_held("k").await;
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    assert_eq!(scene.clean_up(&redriven, "FAILED").await, 0);
    let end = scene.engine.until_end(&other, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.counter("k").await, (1, [other.arn].into()));
}

#[tokio::test]
async fn a_redriven_execution_acquires_the_lock_under_its_own_name_and_a_late_event_spares_it() {
    let Some(scene) = Scene::new().await else { return };
    let other = scene.locks().try_acquire("k").lease(PATIENCE).await.unwrap().granted().unwrap();
    let stopped = stopped_in(&scene, "stopped", "WaitForHolder").await;
    other.release().await.unwrap();
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let lock = scene.until_held("k").await;
    assert_eq!((lock.holder, lock.workflow), (format!("{}/1", stopped.arn), Some(stopped.arn.clone())));
    // The event of the first end arrives only now.
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 0);
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.counter("k").await, (1, [stopped.arn].into()));
}
