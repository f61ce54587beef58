//! One of N places: the state of docs/without-a-function.md that draws a place before the lock is acquired.

use super::{document, options, scene};
use crate::scene::PATIENCE;
use lambda_lock_asl::Options;
use lambda_lock_local::lambda::workspace;
use lambda_lock_local::states::Definition;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The sample behind the state of the page, with two places.
fn drawing_a_place() -> Definition {
    let page = std::fs::read_to_string(workspace().join("docs/without-a-function.md")).unwrap();
    let state = page.split("```json").find(|block| block.contains("\"DrawPlace\"")).unwrap();
    let state: Value = serde_json::from_str(state.split("```").next().unwrap()).unwrap();
    let mut document = document(&Options { key: "$place".to_owned(), ..options() });
    document["States"]["DrawPlace"] = state["DrawPlace"].clone();
    document["StartAt"] = json!("DrawPlace");
    Definition::new(document).replacing("$random() * 5", "$random() * 2")
}

#[tokio::test]
async fn executions_that_draw_a_place_keep_it_until_they_have_worked() {
    let Some(scene) = scene().await else { return };
    let (machine, input) = (drawing_a_place(), json!({}));
    let mut executions = Vec::new();
    for number in 0..6 {
        executions.push(scene.engine.execute(&format!("execution-{number}"), &machine, &input).await.unwrap());
    }

    for execution in &executions {
        let end = scene.engine.until_end(execution, PATIENCE).await.unwrap();
        assert_eq!(end.status, "SUCCEEDED", "{end:?}");
        let states = scene.engine.states(execution).await.unwrap();
        assert_eq!(states.iter().filter(|state| *state == "DrawPlace").count(), 1, "{states:?}");
    }
    // Nobody counted at the place of another one.
    let (first, second) = (scene.counter("gateway/0").await, scene.counter("gateway/1").await);
    assert_eq!(first.0 + second.0, 6, "{first:?} {second:?}");
    assert_eq!(first.1.len() + second.1.len(), 6, "{first:?} {second:?}");
    let all: BTreeSet<_> = executions.into_iter().map(|execution| execution.arn).collect();
    assert_eq!(first.1.union(&second.1).cloned().collect::<BTreeSet<_>>(), all);
    for place in scene.locks().semaphore("gateway", 5).peek().await.unwrap().into_iter().flatten() {
        assert!(place.released, "{place:?}");
    }
}
