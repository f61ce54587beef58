//! skip-if-running: one execution works, and the others end at once with success.

use crate::scene::{PATIENCE, Scene, definition};
use lambda_lock_local::states::Definition;
use serde_json::json;

const MACHINE: &str = "skip-if-running";

/// The key has the state machine's name. Here every execution has its own state machine, so all get the
/// same name.
fn of_one_name() -> Definition {
    definition(MACHINE).renamed("nightly")
}

#[tokio::test]
async fn while_one_execution_works_the_others_skip_and_afterwards_the_next_one_works() {
    let Some(scene) = Scene::new().await else { return };
    let mut held = scene.hold_step("add");
    let working = scene.engine.execute("first", &of_one_name(), &json!({})).await.unwrap();
    held.until(1).await;
    for name in ["second", "third"] {
        let skipped = scene.engine.execute(name, &of_one_name(), &json!({})).await.unwrap();
        let end = scene.engine.until_end(&skipped, PATIENCE).await.unwrap();
        assert_eq!(end.status, "SUCCEEDED", "{end:?}");
        assert_eq!(scene.engine.states(&skipped).await.unwrap(), ["Lock", "Skipped"]);
        assert_eq!(end.output["skipped"]["Error"], "LockHeld");
        // Compares the end of the name, in which executions differ.
        let named = format!("{}/0", working.arn);
        let cause = end.output["skipped"]["Cause"].as_str().unwrap();
        assert!(cause.contains(&named[named.len() - 48..]), "{end:?}");
    }
    drop(held);
    assert_eq!(scene.engine.until_end(&working, PATIENCE).await.unwrap().status, "SUCCEEDED");
    let next = scene.engine.execute("fourth", &of_one_name(), &json!({})).await.unwrap();
    let end = scene.engine.until_end(&next, PATIENCE).await.unwrap();
    assert_eq!(scene.engine.states(&next).await.unwrap(), ["Lock", "Work", "Unlock"]);
    assert_eq!((end.status.as_str(), &end.output), ("SUCCEEDED", &json!({ "value": 2 })));
    assert_eq!(scene.counter("nightly").await, (2, [working.arn, next.arn].into()));
}

#[tokio::test]
async fn a_run_that_fails_leaves_the_lock_to_the_next_one() {
    let Some(scene) = Scene::new().await else { return };
    let failing = json!({ "simulate": { "crashAt": "add" } });
    let failed = scene.engine.execute("first", &of_one_name(), &failing).await.unwrap();
    let end = scene.engine.until_end(&failed, PATIENCE).await.unwrap();
    assert_eq!((end.status.as_str(), end.error.as_deref()), ("FAILED", Some("Runtime.ExitError")));
    let next = scene.engine.execute("second", &of_one_name(), &json!({})).await.unwrap();
    assert_eq!(scene.engine.until_end(&next, PATIENCE).await.unwrap().status, "SUCCEEDED");
    assert_eq!(scene.counter("nightly").await, (1, [next.arn].into()));
}
