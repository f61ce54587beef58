//! fan-out: every item has its own lock.

use crate::scene::{LEASE, PATIENCE, POLL, Scene, definition};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const MACHINE: &str = "fan-out";

fn item(key: &str, simulate: Value) -> Value {
    json!({ "key": key, "simulate": simulate })
}

#[tokio::test]
async fn one_item_s_failure_frees_its_own_lock_and_no_other_s() {
    let Some(scene) = Scene::new().await else { return };
    let slow = json!({ "stepMillis": 2500 });
    let items = json!({ "items": [
        item("a", slow.clone()), item("b", json!({ "failAt": "add" })), item("c", json!({ "crashAt": "add" })), item("d", slow),
    ]});
    let execution = scene.engine.execute("many", &definition(MACHINE), &items).await.unwrap();
    for key in ["a", "d"] {
        scene.until_held(key).await;
    }
    // The failing items fail long before the slow ones are done.
    let failed = async {
        while !(scene.locks().peek("b").await.unwrap().is_some_and(|lock| lock.released)
            && scene.locks().peek("c").await.unwrap().is_some_and(|lock| lock.released))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, failed).await.unwrap();
    for key in ["a", "d"] {
        assert!(!scene.lock(key).await.released, "{key} must still be held");
    }
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("ItemsFailed")), "{end:?}");
    for (index, (key, count)) in [("a", 1), ("b", 0), ("c", 0), ("d", 1)].into_iter().enumerate() {
        assert!(scene.lock(key).await.released, "{key}");
        let writers = (count > 0).then(|| format!("{}/{index}", execution.arn)).into_iter().collect();
        assert_eq!(scene.counter(key).await, (count, writers), "{key}");
    }
    assert_eq!(scene.clean_up(&execution, "FAILED").await, 0, "all locks were already released");
}

#[tokio::test]
async fn two_items_of_one_execution_with_one_key_wait_for_each_other() {
    let Some(scene) = Scene::new().await else { return };
    let items =
        json!({ "items": [item("k", json!({})), item("k", json!({ "stepMillis": 300 })), item("k", json!({}))] });
    let (execution, end) = scene.run("many", MACHINE, items).await;
    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
    let writers = (0..3).map(|index| format!("{}/{index}", execution.arn)).collect();
    assert_eq!(scene.counter("k").await, (3, writers));
    assert_eq!(end.output, json!({ "done": 3 }));
}

#[tokio::test]
async fn an_execution_that_is_stopped_leaves_the_locks_of_all_its_items_to_the_clean_up() {
    let Some(scene) = Scene::new().await else { return };
    let slow = json!({ "stepMillis": 1500 });
    let items = json!({ "items": [item("a", slow.clone()), item("b", slow.clone()), item("c", slow)] });
    let execution = scene.engine.execute("many", &definition(MACHINE), &items).await.unwrap();
    for key in ["a", "b", "c"] {
        scene.until_held(key).await;
    }
    scene.engine.stop(&execution).await.unwrap();
    let stopped = Instant::now();
    assert_eq!(scene.clean_up(&execution, "ABORTED").await, 3);
    for key in ["a", "b", "c"] {
        assert!(scene.lock(key).await.released, "{key}");
    }
    assert!(
        stopped.elapsed() < LEASE.saturating_sub(POLL),
        "the lock must be free before its lease ends: {:?}",
        stopped.elapsed()
    );
}

#[tokio::test]
async fn very_many_items_are_child_executions_and_their_failures_are_counted() {
    let Some(scene) = Scene::new().await else { return };
    let items = json!({ "items": [
        item("a", json!({})), item("a", json!({})), item("b", json!({ "failAt": "add" })), json!({}), json!("no object"),
    ]});

    let (execution, end) = scene.run("many", "fan-out-many", items).await;

    assert_eq!(end.error.as_deref(), Some("ItemsFailed"), "{end:?}");
    assert!(end.cause.unwrap().starts_with("3 items failed"));
    let (count, writers) = scene.counter("a").await;
    assert_eq!((count, writers.len()), (2, 2), "{writers:?}");
    assert!(!writers.contains(&execution.arn), "the holder is the child execution: {writers:?}");
    for key in ["a", "b"] {
        assert!(scene.lock(key).await.released, "{key}");
    }
    // Its history has only the states outside of the items.
    assert_eq!(scene.engine.states(&execution).await.unwrap(), ["EachItem", "IsAnyFailed", "Failed"]);
}
