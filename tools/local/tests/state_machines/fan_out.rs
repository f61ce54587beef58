//! fan-out: every item has its own lock.

use crate::paths::catching_no_large_answer;
use crate::scene::{PATIENCE, Scene, definition};
use lambda_lock_local::states::{Before, Definition, Held, Instead};
use serde_json::{Value, json};

const MACHINE: &str = "fan-out";

fn item(key: &str, simulate: Value) -> Value {
    json!({ "key": key, "simulate": simulate })
}

/// No lease ends while a test runs.
fn with_long_leases() -> Definition {
    Definition::read(MACHINE).unwrap().with_lease(PATIENCE.as_secs_f64())
}

/// Holds back the work on these keys.
fn hold_work_on(scene: &Scene, keys: &'static [&str]) -> Held {
    let is_of_keys = |request: &Value| request["counter"].as_str().is_some_and(|counter| keys.contains(&counter));
    scene.router.hold(Before::Request, move |_, request| is_of_keys(request))
}

#[tokio::test]
async fn one_item_s_failure_frees_its_own_lock_and_no_other_s() {
    let Some(scene) = Scene::new().await else { return };
    let items = json!({ "items": [
        item("a", json!({})), item("b", json!({ "failAt": "add" })), item("c", json!({ "crashAt": "add" })),
        item("d", json!({})),
    ]});
    // The failing items fail before the others have begun their work.
    let mut held = hold_work_on(&scene, &["a", "d"]);
    let execution = scene.engine.execute("many", &with_long_leases(), &items).await.unwrap();
    held.until(2).await;
    let is_released = async |key| scene.locks().operator().peek(key).await.unwrap().is_some_and(|lock| lock.released);
    scene.until(async || is_released("b").await && is_released("c").await).await;
    for key in ["a", "d"] {
        assert!(!scene.lock(key).await.released, "{key} must still be held");
    }
    drop(held);
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("ItemsFailed")), "{end:?}");
    assert!(end.cause.unwrap().starts_with("items 1, 2 failed: [{"));
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
    let items = json!({ "items": [item("a", json!({})), item("b", json!({})), item("c", json!({}))] });
    let mut held = hold_work_on(&scene, &["a", "b", "c"]);
    let execution = scene.engine.execute("many", &with_long_leases(), &items).await.unwrap();
    held.until(3).await;
    scene.engine.stop(&execution).await.unwrap();
    assert_eq!(scene.clean_up(&execution, "ABORTED").await, 3);
    for key in ["a", "b", "c"] {
        assert!(scene.lock(key).await.released, "{key}");
    }
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

/// As with an ItemReader: the input has no items.
#[tokio::test]
async fn the_failures_of_items_that_are_not_in_the_input_are_counted_too() {
    let Some(scene) = Scene::new().await else { return };
    let mut machine = definition("fan-out-many").document().clone();
    machine["States"]["EachItem"]["Items"] = json!([item("a", json!({})), json!("no object")]);

    let execution = scene.engine.execute("many", &Definition::new(machine), &json!({})).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    assert_eq!(end.error.as_deref(), Some("ItemsFailed"), "{end:?}");
    assert!(end.cause.unwrap().starts_with("1 items failed"));
}

#[tokio::test]
async fn a_child_execution_that_fails_stops_none_of_the_others() {
    let Some(scene) = Scene::new().await else { return };
    // The child execution fails because nothing catches this.
    scene.work(|counter| (counter == "large").then(|| Instead::Answer(json!("x".repeat(300_000)))));
    let mut machine = catching_no_large_answer("fan-out-many").document().clone();
    machine["States"]["EachItem"]["MaxConcurrency"] = json!(1);
    let items = json!({ "items": [item("large", json!({})), item("a", json!({})), item("b", json!({}))] });

    let execution = scene.engine.execute("many", &Definition::new(machine), &items).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    assert_eq!(end.error.as_deref(), Some("ItemsFailed"), "{end:?}");
    assert!(end.cause.unwrap().starts_with("1 items failed"));
    for key in ["a", "b"] {
        assert_eq!(scene.counter(key).await.0, 1, "{key}");
        assert!(scene.lock(key).await.released, "{key}");
    }
    assert!(!scene.lock("large").await.released, "its child execution had no chance to release it");
}
