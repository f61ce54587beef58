//! Tests that processes are stopped and continued. Linux reports their states.

use crate::scene::{LONG, NAME, SHORT, Scene, answer, begin};
use lambda_lock_local::Outcome;
use serde_json::json;
use std::time::Duration;

pub(crate) fn state(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').next()?.to_owned())
}

async fn until_state(process: u32, is_it: impl Fn(Option<&str>) -> bool) {
    let reached = async {
        while !is_it(state(process).as_deref()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let last = || format!("{process} is {:?}", state(process));
    tokio::time::timeout(Duration::from_secs(120), reached).await.unwrap_or_else(|_| panic!("{}", last()));
}

#[tokio::test]
async fn between_two_invocations_the_process_is_stopped_and_the_next_one_continues_it() {
    let scene = Scene::new(LONG).await;
    scene.invoke(json!({ "key": "k" })).await;
    let process = scene.lambda.process(scene.only()).unwrap();
    until_state(process, |state| state == Some("T")).await;
    assert!(!scene.invoke(json!({ "key": "k" })).await.cold_start);
    assert_eq!(scene.lambda.process(scene.only()), Some(process));
    until_state(process, |state| state == Some("T")).await;
}

#[tokio::test]
async fn an_invocation_that_is_frozen_in_the_middle_goes_on_when_it_is_thawed() {
    let scene = Scene::new(LONG).await;
    let working = begin(&scene, json!({ "key": "k", "steps": [100, 1] }));
    scene.until_logged("step 0 of k").await;
    scene.lambda.freeze(scene.only()).unwrap();
    let process = scene.lambda.process(scene.only()).unwrap();
    until_state(process, |state| state == Some("T")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!working.is_finished());
    scene.lambda.thaw(scene.only()).unwrap();
    let thawed = working.await.unwrap();
    assert_eq!(answer(&thawed)["steps"], 2);
    assert!(thawed.duration >= Duration::from_millis(300), "{thawed:?}");
}

#[tokio::test]
async fn a_frozen_invocation_is_killed_at_its_deadline() {
    let scene = Scene::new(SHORT).await;
    let working = begin(&scene, json!({ "key": "k", "steps": [60_000] }));
    scene.until_logged("step 0 of k").await;
    scene.lambda.freeze(scene.only()).unwrap();
    assert_eq!(working.await.unwrap().outcome, Outcome::TimedOut);
    assert_eq!(scene.lambda.process(scene.only()), None);
}

/// Work is stopped when its lease has ended. With this lease the deadline always comes first.
const LONG_LEASE: u64 = 60_000;

#[tokio::test]
async fn while_its_host_stands_still_an_invocation_is_not_killed_and_goes_on_afterwards() {
    let scene = Scene::new(SHORT).await;
    let working = begin(&scene, json!({ "key": "k", "steps": [300, 1], "leaseMillis": LONG_LEASE }));
    scene.until_logged("step 0 of k").await;
    scene.lambda.stand_still(scene.only()).unwrap();
    tokio::time::sleep(SHORT + Duration::from_millis(500)).await;
    assert!(!working.is_finished());
    scene.lambda.thaw(scene.only()).unwrap();
    let late = working.await.unwrap();
    assert_eq!(answer(&late)["steps"], 2);
    assert!(late.duration > SHORT, "{late:?}");
}

#[tokio::test]
async fn after_a_standstill_the_deadline_is_kept_somewhat_later() {
    let scene = Scene::new(SHORT).await;
    let working = begin(&scene, json!({ "key": "k", "steps": [60_000], "leaseMillis": LONG_LEASE }));
    scene.until_logged("step 0 of k").await;
    scene.lambda.stand_still(scene.only()).unwrap();
    scene.lambda.thaw(scene.only()).unwrap();
    assert_eq!(working.await.unwrap().outcome, Outcome::TimedOut);
}

#[tokio::test]
async fn no_process_outlives_the_last_handle_neither_a_frozen_nor_a_busy_one() {
    let scene = Scene::new(LONG).await;
    let busy = begin(&scene, json!({ "key": "a", "steps": [60_000] }));
    scene.until_logged("step 0 of a").await;
    scene.invoke(json!({ "key": "b" })).await;
    let environments = scene.lambda.environments(NAME);
    let processes: Vec<_> = environments.iter().map(|one| scene.lambda.process(*one).unwrap()).collect();
    assert_eq!(processes.len(), 2);
    busy.abort();
    let _ = busy.await;
    drop(scene);
    for process in processes {
        until_state(process, |state| matches!(state, None | Some("Z"))).await;
    }
}
