//! Executions that are stopped or redriven, with lock-cleaner and without it.

use super::{machine, run, scene, slow, states, until_in};
use crate::scene::{LEASE, PATIENCE, POLL, SKEW, Scene};
use lambda_lock_asl::Poll;
use lambda_lock_local::states::{Definition, Execution};
use std::time::{Duration, Instant, SystemTime};

/// How much two busy processors may add.
const SLACK: Duration = Duration::from_millis(2500);

/// Starts an execution and stops it in this state.
async fn stopped_in(scene: &Scene, name: &str, state: &str) -> Execution {
    let input = slow("k", Duration::from_millis(700));
    let execution = scene.engine.execute(name, &machine(Poll::Look), &input).await.unwrap();
    until_in(scene, &execution, state).await;
    scene.engine.stop(&execution).await.unwrap();
    assert_eq!(scene.engine.until_end(&execution, PATIENCE).await.unwrap().status, "ABORTED");
    execution
}

#[tokio::test]
async fn lock_cleaner_frees_the_lock_of_a_stopped_execution() {
    let Some(scene) = scene().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    assert_eq!(scene.lock("k").await.workflow, Some(stopped.arn.clone()));
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let (next, error) = run(&scene, "next", Poll::Look, "k").await;
    assert_eq!((error, states(&scene, &next).await), (None, super::FREE.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn without_lock_cleaner_the_lock_of_a_stopped_execution_is_free_after_its_lease() {
    let Some(scene) = scene().await else { return };
    for (key, poll) in [("looks", Poll::Look), ("claims", Poll::Claim)] {
        let input = slow(key, Duration::from_millis(700));
        let stopped = scene.engine.execute(&format!("{key}-stopped"), &machine(poll), &input).await.unwrap();
        until_in(&scene, &stopped, "FirstStep").await;
        scene.engine.stop(&stopped).await.unwrap();
        let (token, granted) = (scene.lock(key).await.fencing_token, Instant::now());
        let (next, error) = run(&scene, key, poll, key).await;
        assert_eq!(error, None);
        assert!(granted.elapsed() < LEASE + SKEW + POLL + SLACK, "{key}: {:?}", granted.elapsed());
        assert!(scene.lock(key).await.fencing_token > token);
        let waited = states(&scene, &next).await.iter().filter(|state| *state == "WaitForHolder").count();
        assert!(waited >= 2, "{key}: {waited}");
    }
}

#[tokio::test]
async fn a_redriven_execution_goes_on_with_its_lock_while_nobody_else_came() {
    let Some(scene) = scene().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    let token = scene.lock("k").await.fencing_token;
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(states(&scene, &redriven).await, ["FirstStep", "Renew", "SecondStep", "Unlock"]);
    assert_eq!(scene.counter("k").await, (1, [stopped.arn].into()));
    let lock = scene.lock("k").await;
    assert_eq!((lock.released, lock.fencing_token), (true, token));
}

#[tokio::test]
async fn a_redriven_execution_whose_lock_was_cleaned_up_learns_it_from_its_renewal() {
    let Some(scene) = scene().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    assert_eq!(states(&scene, &redriven).await, ["FirstStep", "Renew", "UnlockAfterFailure", "Failed"]);
    assert_eq!(scene.counter("k").await.0, 0);
}

#[tokio::test]
async fn a_redriven_execution_after_somebody_else_writes_nothing_and_releases_nothing() {
    let Some(scene) = scene().await else { return };
    let stopped = stopped_in(&scene, "stopped", "FirstStep").await;
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let input = slow("k", Duration::from_millis(900));
    let other = scene.engine.execute("other", &machine(Poll::Look), &input).await.unwrap();
    scene.until_held("k").await;
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    let end = scene.engine.until_end(&other, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.counter("k").await, (1, [other.arn].into()));
}

/// Nobody knows whether the function still runs. lock-cleaner hears of the execution only when it fails.
#[tokio::test]
async fn a_step_that_times_out_keeps_its_lock_until_the_end_of_its_lease() {
    let Some(scene) = scene().await else { return };
    let mut impatient = super::document(&super::options(Poll::Look));
    impatient["States"]["FirstStep"]["TimeoutSeconds"] = serde_json::json!(1);
    let machine = Definition::new(impatient);
    let input = slow("k", Duration::from_millis(2_500));
    let execution = scene.engine.execute("times-out", &machine, &input).await.unwrap();
    let granted = scene.until_held("k").await;
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("States.Timeout")), "{end:?}");
    assert_eq!(states(&scene, &execution).await, ["Lock", "FirstStep", "LeftToItsLease", "Failed"]);
    assert!(SystemTime::now() >= granted.lease_ends_at.unwrap(), "it fails only when the lease is over");
    let lock = scene.lock("k").await;
    assert_eq!((lock.released, lock.version), (false, granted.version));
}

#[tokio::test]
async fn an_execution_that_was_redriven_while_it_waited_acquires_under_its_new_name() {
    let Some(scene) = scene().await else { return };
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
}

#[tokio::test]
async fn a_failed_step_frees_the_lock_and_fails_under_its_own_name() {
    let Some(scene) = scene().await else { return };
    let input = serde_json::json!({ "key": "k", "simulate": { "failAt": "write" } });
    let execution = scene.engine.execute("fails", &machine(Poll::Look), &input).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("WorkFailed")), "{end:?}");
    assert!(end.cause.unwrap().contains("the step write fails"));
    assert!(scene.lock("k").await.released);
}
