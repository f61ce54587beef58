//! The engine does as Step Functions documents it, where moto and MiniStack do otherwise: `docs/local.md` has the
//! table, whose last column names these tests.

use crate::scene::{PATIENCE, Scene};
use lambda_lock_local::states::{Definition, End, Engine, Execution, Instead};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// An engine whose functions cannot be reached.
async fn engine() -> Option<Engine> {
    Engine::start("http://127.0.0.1:1").await.unwrap()
}

fn machine(states: Value) -> Definition {
    Definition::new(json!({ "QueryLanguage": "JSONata", "StartAt": "A", "States": states }))
}

async fn run(engine: &Engine, name: &str, machine: &Definition, input: Value) -> (Execution, End) {
    let execution = engine.execute(name, machine, &input).await.unwrap();
    let end = engine.until_end(&execution, PATIENCE).await.unwrap();
    (execution, end)
}

/// A task that fails as `Lambda.SdkClientException`.
fn unreachable(more: Value) -> Value {
    let mut task = json!({
        "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Arguments": { "FunctionName": "f", "Payload": {} },
    });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

#[tokio::test]
async fn no_catch_sees_a_request_that_is_too_large() {
    let Some(engine) = engine().await else { return };
    let catch = ["States.DataLimitExceeded", "States.ALL"].map(|name| json!({ "ErrorEquals": [name], "Next": "B" }));
    let large = json!({ "Payload": "{% $pad('', 300000, 'x') %}", "FunctionName": "f" });
    let task = unreachable(json!({ "Arguments": large, "Catch": catch, "End": true }));

    let (_, end) = run(&engine, "one", &machine(json!({ "A": task, "B": { "Type": "Succeed" } })), json!({})).await;

    assert_eq!(end.error.as_deref(), Some("States.DataLimitExceeded"), "{end:?}");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_seen_by_a_catch_that_names_it_and_by_no_other() {
    let Some(scene) = Scene::new().await else { return };
    scene.router.instead(|_, _| Some(Instead::Answer(json!("x".repeat(300_000)))));
    for (named, status) in
        [("States.DataLimitExceeded", "SUCCEEDED"), ("States.ALL", "FAILED"), ("States.TaskFailed", "FAILED")]
    {
        let catch = json!([{ "ErrorEquals": [named], "Next": "B" }]);
        let task = unreachable(json!({ "Catch": catch, "End": true }));
        let machine = machine(json!({ "A": task, "B": { "Type": "Succeed" } }));

        let (_, end) = run(&scene.engine, named, &machine, json!({})).await;

        assert_eq!(end.status, status, "{named}: {end:?}");
    }
}

#[tokio::test]
async fn an_expression_without_a_value_is_an_error_that_a_catch_sees() {
    let Some(engine) = engine().await else { return };
    let catch = json!([{ "ErrorEquals": ["States.QueryEvaluationError"], "Next": "B" }]);
    let task = unreachable(json!({ "Arguments": "{% $states.input.nothing %}", "Catch": catch, "End": true }));

    let (_, end) = run(&engine, "one", &machine(json!({ "A": task, "B": { "Type": "Succeed" } })), json!({})).await;

    assert_eq!(end.status, "SUCCEEDED", "{end:?}");
}

#[tokio::test]
async fn retries_count_within_a_visit() {
    let Some(engine) = engine().await else { return };
    let retry = json!([{ "ErrorEquals": ["States.ALL"], "MaxAttempts": 1, "IntervalSeconds": 0.01 }]);
    let catch = json!([{ "ErrorEquals": ["States.ALL"], "Output": "{% $states.input + 1 %}", "Next": "C" }]);
    let states = json!({
        "A": unreachable(json!({ "Retry": retry, "Catch": catch, "End": true })),
        "C": { "Type": "Choice", "Choices": [{ "Condition": "{% $states.input = 3 %}", "Next": "B" }], "Default": "A" },
        "B": { "Type": "Succeed" },
    });

    let (execution, end) = run(&engine, "one", &machine(states), json!(0)).await;

    assert_eq!(end.output, json!(3), "{end:?}");
    let history = engine.history(&execution).await.unwrap();
    assert_eq!(history.iter().filter(|event| event["type"] == "TaskFailed").count(), 3 * 2);
}

#[tokio::test]
async fn a_task_ends_at_its_timeout_and_task_failed_does_not_match_it() {
    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let Some(engine) = Engine::start(&endpoint).await.unwrap() else { return };
    let catch = json!([{ "ErrorEquals": ["States.TaskFailed"], "Next": "B" }]);
    let task = unreachable(json!({ "TimeoutSeconds": 1, "Catch": catch, "End": true }));

    let (_, end) = run(&engine, "one", &machine(json!({ "A": task, "B": { "Type": "Succeed" } })), json!({})).await;

    assert_eq!(end.error.as_deref(), Some("States.Timeout"), "{end:?}");
}

#[tokio::test]
async fn the_timeout_of_an_execution_and_a_stop_end_a_wait_at_once() {
    let Some(engine) = engine().await else { return };
    let wait = machine(json!({ "A": { "Type": "Wait", "Seconds": 30, "Next": "B" }, "B": { "Type": "Succeed" } }));
    let started = Instant::now();

    let stopped = engine.execute("stopped", &wait, &json!({})).await.unwrap();
    engine.stop(&stopped).await.unwrap();
    let (_, timed_out) = run(&engine, "timed", &wait.clone().with_timeout(1), json!({})).await;

    assert_eq!(engine.end(&stopped).await.unwrap().unwrap().status, "ABORTED");
    assert_eq!(timed_out.status, "TIMED_OUT");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_stop_ends_a_map_and_a_redrive_goes_on_where_it_was() {
    let Some(engine) = engine().await else { return };
    let each = json!({ "StartAt": "W", "States": {
        "W": { "Type": "Wait", "Seconds": "{% $states.input %}", "Assign": { "waited": 1 }, "Next": "P" },
        "P": { "Type": "Pass", "Output": "{% $waited + $outside + $states.context.Execution.RedriveCount %}", "End": true },
    }});
    let states = json!({
        "A": { "Type": "Pass", "Assign": { "outside": 10 }, "Next": "M" },
        "M": { "Type": "Map", "Items": [0, 2], "ItemProcessor": each, "End": true },
    });
    let execution = engine.execute("one", &machine(states), &json!({})).await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    engine.stop(&execution).await.unwrap();

    let stopped = engine.states(&execution).await.unwrap();
    let redriven = engine.redrive(&execution).await.unwrap();
    let end = engine.until_end(&redriven, PATIENCE).await.unwrap();

    assert_eq!(stopped.iter().filter(|state| *state == "P").count(), 1, "the other item must not go on: {stopped:?}");
    assert_eq!(engine.states(&redriven).await.unwrap(), ["M", "W", "P"], "what had ended is not done again");
    assert_eq!(end.output, json!([11, 12]), "{end:?}");
}

#[tokio::test]
async fn variables_of_a_branch_stay_inside_and_arguments_reach_it() {
    let Some(engine) = engine().await else { return };
    let branch = json!({ "StartAt": "P", "States": {
        "P": { "Type": "Pass", "Assign": { "inner": 1 }, "Output": "{% $states.input.n %}", "End": true },
    }});
    let states = json!({
        "A": { "Type": "Parallel", "Arguments": { "n": 7 }, "Branches": [branch], "Next": "B" },
        "B": { "Type": "Pass", "Output": { "seen": "{% $exists($inner) %}", "n": "{% $states.input %}" }, "End": true },
    });

    let (_, end) = run(&engine, "one", &machine(states), json!({})).await;

    assert_eq!(end.output, json!({ "seen": false, "n": [7] }), "{end:?}");
}

#[tokio::test]
async fn a_definition_that_leads_nowhere_is_refused() {
    let Some(engine) = engine().await else { return };
    let nowhere = machine(json!({ "A": { "Type": "Pass", "Next": "Nowhere" } }));

    let error = engine.execute("one", &nowhere, &json!({})).await.unwrap_err();

    assert!(error.to_string().contains("InvalidDefinition"), "{error}");
}

#[tokio::test]
async fn a_history_has_at_most_25_000_events() {
    let Some(engine) = engine().await else { return };
    let forever = machine(json!({ "A": { "Type": "Pass", "Next": "B" }, "B": { "Type": "Pass", "Next": "A" } }));

    let (execution, end) = run(&engine, "one", &forever, json!({})).await;

    assert_eq!((&*end.status, end.error.as_deref()), ("FAILED", Some("States.Runtime")), "{end:?}");
    assert_eq!(engine.history(&execution).await.unwrap().len(), 25_000);
}

#[tokio::test]
async fn an_item_of_a_distributed_map_is_an_execution_of_its_own() {
    let Some(engine) = engine().await else { return };
    let each = json!({
        "ProcessorConfig": { "Mode": "DISTRIBUTED", "ExecutionType": "STANDARD" }, "StartAt": "P",
        "States": { "P": { "Type": "Pass", "Output": "{% [$states.context.Execution.Id, $exists($outside)] %}", "End": true } },
    });
    let states = json!({
        "A": { "Type": "Pass", "Assign": { "outside": 1 }, "Next": "M" },
        "M": { "Type": "Map", "Items": [1, 2], "ItemProcessor": each, "End": true },
    });

    let (execution, end) = run(&engine, "one", &machine(states), json!({})).await;

    let [first, second] = [&end.output[0], &end.output[1]];
    assert!(first[0] != second[0] && first[0].as_str() != Some(&*execution.arn), "{end:?}");
    assert_eq!((&first[1], &second[1]), (&json!(false), &json!(false)));
}
