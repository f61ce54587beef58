//! Executions that are stopped or redriven, with lock-cleaner and without it.

use super::{machine, run, scene, states};
use crate::ends::{redriven_after_its_lease, redriven_beside_a_lock_of_its_first_attempt, redriven_while_it_waited};
use crate::grants::SLACK;
use crate::paths::{MAX_INPUT, counting_no_escapes};
use crate::scene::{LEASE, PATIENCE, POLL, SKEW};
use lambda_lock_local::states::{Before, Definition, Instead};
use serde_json::{Value, json};
use std::time::{Instant, SystemTime};

#[tokio::test]
async fn lock_cleaner_frees_the_lock_of_a_stopped_execution() {
    let Some(scene) = scene().await else { return };
    let stopped = scene.stopped_in("stopped", &machine(), "FirstStep").await;
    assert_eq!(scene.lock("k").await.workflow, Some(stopped.arn.clone()));
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let (next, error) = run(&scene, "next", "k").await;
    assert_eq!((error, states(&scene, &next).await), (None, super::FREE.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn without_lock_cleaner_the_lock_of_a_stopped_execution_is_free_after_its_lease() {
    let Some(scene) = scene().await else { return };
    let mut held = scene.hold_step("read");
    let input = json!({ "key": "k" });
    let stopped = scene.engine.execute("stopped", &machine(), &input).await.unwrap();
    held.until(1).await;
    scene.engine.stop(&stopped).await.unwrap();
    drop(held);
    let (left, granted) = (scene.lock("k").await, Instant::now());
    let (_, error) = run(&scene, "next", "k").await;
    assert_eq!(error, None);
    assert!(granted.elapsed() < LEASE + SKEW + POLL + SLACK, "{:?}", granted.elapsed());
    assert!(scene.lock("k").await.fencing_token > left.fencing_token);
    assert!(SystemTime::now() > left.lease_ends_at.unwrap() + SKEW, "before the end of the lease");
}

#[tokio::test]
async fn a_redriven_execution_goes_on_with_its_lock_while_nobody_else_came() {
    let Some(scene) = scene().await else { return };
    let stopped = scene.stopped_in("stopped", &machine(), "FirstStep").await;
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
    let stopped = scene.stopped_in("stopped", &machine(), "FirstStep").await;
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
    let stopped = scene.stopped_in("stopped", &machine(), "FirstStep").await;
    assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
    let arn = stopped.arn.clone();
    let of_other = move |_: &str, request: &Value| request["step"] == "read" && request["writer"] != *arn;
    let mut held = scene.router.hold(Before::Request, of_other);
    let other = scene.engine.execute("other", &machine(), &json!({ "key": "k" })).await.unwrap();
    held.until(1).await;
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("LockLost")), "{end:?}");
    drop(held);
    let end = scene.engine.until_end(&other, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    assert_eq!(scene.counter("k").await, (1, [other.arn].into()));
}

/// Nobody knows whether the function still runs. lock-cleaner hears of the execution only when it fails.
#[tokio::test]
async fn a_step_that_times_out_keeps_its_lock_until_the_end_of_its_lease() {
    let Some(scene) = scene().await else { return };
    let mut impatient = super::document(&super::options());
    impatient["States"]["FirstStep"]["TimeoutSeconds"] = json!(1);
    let machine = Definition::new(impatient);
    let mut held = scene.hold_step("read");
    let execution = scene.engine.execute("times-out", &machine, &json!({ "key": "k" })).await.unwrap();
    held.until(1).await;
    let granted = scene.lock("k").await;
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
    redriven_while_it_waited(&scene, &machine()).await;
}

#[tokio::test]
async fn a_redriven_execution_does_not_take_a_lock_of_its_first_attempt_for_its_own() {
    let Some(scene) = scene().await else { return };
    redriven_beside_a_lock_of_its_first_attempt(&scene, &machine()).await;
}

#[tokio::test]
async fn an_execution_that_is_redriven_after_its_lease_goes_on_only_if_nobody_came() {
    let Some(scene) = scene().await else { return };
    redriven_after_its_lease(&scene, &machine()).await;
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_the_step_and_releases_the_lock() {
    let Some(scene) = scene().await else { return };
    scene.router.instead(|_, _| Some(Instead::Answer(json!("x".repeat(300_000)))));
    let (execution, error) = run(&scene, "large", "k").await;
    assert_eq!(error.as_deref(), Some("States.DataLimitExceeded"));
    assert_eq!(states(&scene, &execution).await, ["Lock", "FirstStep", "UnlockAfterFailure", "Failed"]);
    assert!(scene.lock("k").await.released);
}

#[tokio::test]
async fn an_input_as_large_as_a_step_allows_passes_every_state() {
    let Some(scene) = scene().await else { return };
    // The first are characters of four bytes, so these are 240 KB.
    for (name, machine, much, expected) in [
        ("fits", counting_no_escapes(machine()), "\u{1f512}".repeat(MAX_INPUT - 100), None),
        ("large", machine(), "x".repeat(MAX_INPUT), Some("States.QueryEvaluationError")),
    ] {
        let execution = scene.engine.execute(name, &machine, &json!({ "key": "k", "much": much })).await.unwrap();
        let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
        assert_eq!(end.error.as_deref(), expected, "{name}: {end:?}");
        assert!(scene.lock("k").await.released, "{name}");
    }
}

#[tokio::test]
async fn a_failed_step_frees_the_lock_and_fails_under_its_own_name() {
    let Some(scene) = scene().await else { return };
    let input = json!({ "key": "k", "simulate": { "failAt": "write" } });
    let execution = scene.engine.execute("fails", &machine(), &input).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("WorkFailed")), "{end:?}");
    assert!(end.cause.unwrap().contains("the step write fails"));
    assert!(scene.lock("k").await.released);
}
