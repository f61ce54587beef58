//! Executions that end without releasing their lock: stopped, timed out or redriven, with the event
//! and without it.

use crate::grants::SLACK;
use crate::scene::{LEASE, PATIENCE, POLL, SKEW, Scene, actions, definition, where_it_waits};
use lambda_lock_local::lambda::workspace;
use lambda_lock_local::states::{Before, Definition};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

const MACHINE: &str = "exclusive-work";

/// Redrives an execution of this state machine twice that was stopped while it waited for the lock.
pub(crate) async fn redriven_while_it_waited(scene: &Scene, machine: &Definition) {
    let other = scene.locks().acquire("k").lease(PATIENCE).try_once().await.unwrap().granted().unwrap();
    let stopped = scene.stopped_in("stopped", machine, where_it_waits(machine)).await;
    let again = scene.engine.redrive(&stopped).await.unwrap();
    scene.until_in(&again, where_it_waits(machine)).await;
    scene.engine.stop(&again).await.unwrap();
    other.release().await.unwrap();
    let mut held = scene.hold_step("read");
    let redriven = scene.engine.redrive(&again).await.unwrap();
    held.until(1).await;
    let lock = scene.lock("k").await;
    assert_eq!((lock.holder, lock.workflow), (format!("{}/2", stopped.arn), Some(stopped.arn.clone())));
    // The events of the first two ends arrive only now.
    for ended in [&stopped, &again] {
        assert_eq!(scene.clean_up(ended, "ABORTED").await, 0);
    }
    drop(held);
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.counter("k").await, (1, [stopped.arn].into()));
}

/// A redriven execution has the ARN of its first attempt. What that attempt has left behind is not its own.
pub(crate) async fn redriven_beside_a_lock_of_its_first_attempt(scene: &Scene, machine: &Definition) {
    let other = scene.locks().acquire("k").lease(PATIENCE).try_once().await.unwrap().granted().unwrap();
    let stopped = scene.stopped_in("stopped", machine, where_it_waits(machine)).await;
    other.release().await.unwrap();
    // A late request of the first attempt.
    let (locks, owner) = (scene.locks(), format!("{}/0", stopped.arn));
    let late = locks.acquire("k").out_of_turn().owner(owner).lease(LEASE).try_once().await.unwrap();
    let first = late.granted().unwrap();
    let redriven = scene.engine.redrive(&stopped).await.unwrap();

    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();

    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let lock = scene.lock("k").await;
    assert_eq!((lock.holder, lock.released), (format!("{}/1", stopped.arn), true));
    assert!(lock.lease_ends_at.unwrap() > first.lease_ends_at().unwrap(), "it must wait for the end of the lease");
    assert!(lock.fencing_token > Some(first.fencing_token()));
}

/// Redrives executions whose lease has ended: nobody came meanwhile, or somebody did.
pub(crate) async fn redriven_after_its_lease(scene: &Scene, machine: &Definition) {
    for somebody_came in [false, true] {
        let stopped = scene.stopped_in(&format!("stopped-{somebody_came}"), machine, "FirstStep").await;
        let left = scene.lock("k").await;
        let over = left.lease_ends_at.unwrap() + SKEW + Duration::from_millis(10);
        tokio::time::sleep(over.duration_since(SystemTime::now()).unwrap()).await;
        let other = match somebody_came {
            true => scene.locks().acquire("k").lease(PATIENCE).try_once().await.unwrap().granted(),
            false => None,
        };
        let (counted, _) = scene.counter("k").await;

        let redriven = scene.engine.redrive(&stopped).await.unwrap();
        let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();

        let (lock, (now, _)) = (scene.lock("k").await, scene.counter("k").await);
        let Some(other) = other else {
            assert_eq!((&*end.status, now), ("SUCCEEDED", counted + 1), "{end:?}");
            assert!(lock.released && lock.fencing_token == left.fencing_token);
            continue;
        };
        assert_eq!((end.error.as_deref(), now), (Some("LockLost"), counted), "{end:?}");
        assert_eq!((lock.released, lock.fencing_token), (false, Some(other.fencing_token())));
        other.release().await.unwrap();
    }
}

#[tokio::test]
async fn the_lock_of_a_stopped_execution_is_free_after_the_event() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = scene.stopped_in("stopped", &definition(MACHINE), "FirstStep").await;
    assert!(!scene.lock("k").await.released);
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    assert!(scene.lock("k").await.released);
    let (_, end) = scene.run("next", MACHINE, json!({ "key": "k" })).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
}

#[tokio::test]
async fn without_the_event_the_lock_of_a_stopped_execution_is_free_after_its_lease() {
    let Some(scene) = Scene::new().await else { return };
    scene.stopped_in("stopped", &definition(MACHINE), "FirstStep").await;
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
    scene.warm_up().await;
    let _held = scene.hold_step("read");
    let timed = definition(MACHINE).with_timeout(2);
    let execution = scene.engine.execute("timed", &timed, &json!({ "key": "k" })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "TIMED_OUT", "{end:?}");
    assert!(!scene.lock("k").await.released);
    assert_eq!(scene.clean_up(&execution, "TIMED_OUT").await, 1);
}

#[tokio::test]
async fn an_acquire_that_is_under_way_when_its_execution_is_stopped_is_caught_by_the_second_look() {
    let Some(scene) = Scene::new().await else { return };
    scene.warm_up().await;
    let mut held = scene.router.hold(Before::Request, |_, request| request["action"] == "acquire");
    let execution = scene.engine.execute("stopped", &definition(MACHINE), &json!({ "key": "k" })).await.unwrap();
    held.until(1).await;
    scene.engine.stop(&execution).await.unwrap();
    let noted = scene.note_requests();
    let lands_after_the_first_look = async {
        scene.until(async || noted.lock().unwrap().contains(&"lock-cleaner Query".to_owned())).await;
        assert!(scene.locks().operator().peek("k").await.unwrap().is_none(), "the acquire must not be applied yet");
        drop(held);
    };
    let (released, ()) = tokio::join!(scene.clean_up(&execution, "ABORTED"), lands_after_the_first_look);
    assert_eq!(released, 1, "the second look must release the lock");
    assert!(scene.lock("k").await.released);
}

#[tokio::test]
async fn an_acquire_that_lands_after_the_clean_up_lasts_no_longer_than_its_lease() {
    let Some(scene) = Scene::new().await else { return };
    let stopped = scene.stopped_in("stopped", &definition(MACHINE), "FirstStep").await;
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
    let stopped = scene.stopped_in("stopped", &definition(MACHINE), "SecondStep").await;
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
    let stopped = scene.stopped_in("stopped", &definition(MACHINE), "FirstStep").await;
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
    let stopped = scene.stopped_in("stopped", &definition(MACHINE), "FirstStep").await;
    scene.clean_up(&stopped, "ABORTED").await;
    let arn = stopped.arn.clone();
    let of_other = move |_: &str, request: &Value| request["step"] == "read" && request["writer"] != *arn;
    let mut held = scene.router.hold(Before::Request, of_other);
    let other = scene.engine.execute("other", &definition(MACHINE), &json!({ "key": "k" })).await.unwrap();
    held.until(1).await;
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    assert_eq!(scene.clean_up(&redriven, "FAILED").await, 0);
    drop(held);
    let end = scene.engine.until_end(&other, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.counter("k").await, (1, [other.arn].into()));
}

#[tokio::test]
async fn a_redriven_execution_acquires_the_lock_under_its_own_name_and_a_late_event_spares_it() {
    let Some(scene) = Scene::new().await else { return };
    redriven_while_it_waited(&scene, &definition(MACHINE)).await;
}

#[tokio::test]
async fn a_redriven_execution_does_not_take_a_lock_of_its_first_attempt_for_its_own() {
    let Some(scene) = Scene::new().await else { return };
    redriven_beside_a_lock_of_its_first_attempt(&scene, &definition(MACHINE)).await;
}

#[tokio::test]
async fn an_execution_that_is_redriven_after_its_lease_goes_on_only_if_nobody_came() {
    let Some(scene) = Scene::new().await else { return };
    redriven_after_its_lease(&scene, &definition(MACHINE)).await;
}

/// What docs/step-functions.md says about a step that must not be done twice.
#[tokio::test]
async fn a_step_can_refuse_to_run_in_a_redrive() {
    let Some(scene) = Scene::new().await else { return };
    let page = std::fs::read_to_string(workspace().join("docs/step-functions.md")).unwrap();
    let token = page.lines().find_map(|line| line.trim().strip_prefix("\"fencingToken\": ")).unwrap();
    let token: Value = serde_json::from_str(token.trim_end_matches(',')).unwrap();
    let machine = definition(MACHINE).replacing("{% $lock.fencingToken %}", token.as_str().unwrap());
    let undisturbed = scene.engine.execute("undisturbed", &machine, &json!({ "key": "k" })).await.unwrap();
    let end = scene.engine.until_end(&undisturbed, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let stopped = scene.stopped_in("stopped", &machine, "SecondStep").await;
    let (counted, _) = scene.counter("k").await;
    scene.router.take_asked();

    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();

    assert_eq!(end.error.as_deref(), Some("States.QueryEvaluationError"), "{end:?}");
    assert_eq!(actions(&scene.router.take_asked()), ["release"]);
    assert!(scene.lock("k").await.released);
    // The function of the stopped attempt still counted.
    scene.until(async || scene.counter("k").await.0 == counted + 1).await;
}
