//! at-most-n: so many executions work at once, and the others wait for one of the places.

use crate::scene::{LEASE, PATIENCE, Scene, definition};
use lambda_lock_local::states::{Definition, Instead};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

const MACHINE: &str = "at-most-n";

/// With two places, so that few executions are enough.
fn with_two_places() -> Definition {
    definition(MACHINE).with_permits(2)
}

#[tokio::test]
async fn two_executions_work_at_once_and_the_others_wait_for_their_places() {
    let Some(scene) = Scene::new().await else { return };
    let mut held = scene.hold_step("add");
    let input = json!({ "key": "gateway" });
    let mut executions = Vec::new();
    for number in 0..4 {
        let name = format!("execution-{number}");
        executions.push(scene.engine.execute(&name, &with_two_places(), &input).await.unwrap());
    }
    held.until(2).await;
    let waiting = async || {
        let mut waiting = 0;
        for execution in &executions {
            waiting += usize::from(scene.looks(execution).await >= 2);
        }
        waiting
    };
    scene.until(async || waiting().await == 2).await;

    let places = scene.locks().semaphore("gateway", 3).peek().await.unwrap();
    let holders: BTreeSet<_> = places.iter().flatten().map(|place| place.workflow.clone().unwrap()).collect();
    assert_eq!((places.iter().flatten().count(), holders.len()), (2, 2), "{places:?}");

    drop(held);
    for execution in &executions {
        let end = scene.engine.until_end(execution, PATIENCE).await.unwrap();
        assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    }
    // Each place has counted for itself.
    let (first, second) = (scene.counter("gateway/0").await, scene.counter("gateway/1").await);
    assert_eq!(first.0 + second.0, 4);
    let all: BTreeSet<_> = executions.into_iter().map(|execution| execution.arn).collect();
    assert_eq!(first.1.union(&second.1).cloned().collect::<BTreeSet<_>>(), all);
}

#[tokio::test]
async fn a_place_of_a_stopped_execution_is_free_after_the_event_and_without_it_after_its_lease() {
    let Some(scene) = Scene::new().await else { return };
    let input = json!({ "key": "k" });
    for is_cleaned_up in [true, false] {
        let mut held = scene.hold_step("add");
        let name = format!("stopped-{is_cleaned_up}");
        let machine = definition(MACHINE).with_permits(1);
        let stopped = scene.engine.execute(&name, &machine, &input).await.unwrap();
        held.until(1).await;
        scene.engine.stop(&stopped).await.unwrap();
        let ends = scene.lock("k/0").await.lease_ends_at.unwrap();
        drop(held);
        if is_cleaned_up {
            assert_eq!(scene.clean_up(&stopped, "ABORTED").await, 1);
        }

        let next = scene.engine.execute(&format!("next-{is_cleaned_up}"), &machine, &input).await.unwrap();
        let end = scene.engine.until_end(&next, PATIENCE).await.unwrap();

        assert_eq!(end.status, "SUCCEEDED", "{end:?}");
        assert_eq!(SystemTime::now() < ends, is_cleaned_up, "{LEASE:?}");
        assert_eq!(scene.looks(&next).await == 0, is_cleaned_up);
    }
}

#[tokio::test]
async fn a_retried_request_gets_its_own_place_again_and_no_second_one() {
    let Some(scene) = Scene::new().await else { return };
    let first = AtomicBool::new(true);
    scene.router.instead(move |_, request| {
        let is_first = request["action"] == "acquire" && first.swap(false, Ordering::SeqCst);
        is_first.then_some(Instead::Lost("ClientExecutionTimeoutException"))
    });
    let machine = definition(MACHINE).with_pauses(0.1);
    let execution = scene.engine.execute("retried", &machine, &json!({ "key": "k" })).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let places = scene.locks().semaphore("k", 5).peek().await.unwrap();
    assert_eq!(places.iter().flatten().count(), 1, "{places:?}");
    assert!(places.iter().flatten().all(|place| place.released), "{places:?}");
}
