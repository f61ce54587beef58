//! The engine does as Step Functions documents it, where moto and MiniStack do otherwise: `docs/local.md` has the
//! table, whose last column names these tests.

use crate::scene::{PATIENCE, Scene};
use lambda_lock_local::authorize::task_token;
use lambda_lock_local::states::{Before, Definition, End, Engine, Execution, Instead};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

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

/// A task that waits for a callback with the token that it gives to the function.
fn waiting(more: Value) -> Value {
    let mut task = unreachable(json!({
        "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken", "End": true,
        "Arguments": { "FunctionName": "f", "Payload": { "token": "{% $states.context.Task.Token %}" } },
    }));
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

/// Lets this happen to the functions from now on, and returns the tokens that they get.
fn tokens(scene: &Scene, happens: Instead) -> UnboundedReceiver<String> {
    let (given, tokens) = unbounded_channel();
    scene.router.instead(move |_, request| {
        // Nobody may wait for it any more.
        let _ = given.send(request["token"].as_str().unwrap().to_owned());
        Some(happens.clone())
    });
    tokens
}

/// A function that has answered at once.
const ANSWERED: Instead = Instead::Answer(Value::Null);

async fn assert_refused(engine: &Engine, token: &str, error: &str) {
    for refused in [engine.succeed(token, "1").await, engine.fail(token, "E", "").await, engine.beat(token).await] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(error), "{refused}");
    }
}

#[tokio::test]
async fn a_callback_ends_its_task_and_its_output_is_the_result() {
    let Some(scene) = Scene::new().await else { return };
    let mut tokens = tokens(&scene, Instead::Answer(json!("of the function")));
    let machine = machine(json!({ "A": waiting(json!({ "Output": "{% [$states.result] %}" })) }));
    let execution = scene.engine.execute("one", &machine, &json!({})).await.unwrap();
    let token = tokens.recv().await.unwrap();

    let has_answered = |event: &Value| event["type"] == "TaskSubmitted";
    scene.until(async || scene.engine.history(&execution).await.unwrap().iter().any(has_answered)).await;
    let invalid = scene.engine.succeed(&token, "NaN").await.unwrap_err().to_string();
    scene.engine.beat(&token).await.unwrap();
    assert!(scene.engine.end(&execution).await.unwrap().is_none(), "the answer of the function ends nothing");
    scene.engine.succeed(&token, r#"{"of":"the callback"}"#).await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    assert!(invalid.contains("InvalidOutput"), "{invalid}");
    assert_eq!(end.output, json!([{ "of": "the callback" }]), "{end:?}");
    assert_refused(&scene.engine, &token, "TaskTimedOut").await;
}

#[tokio::test]
async fn a_callback_may_come_before_the_answer_of_the_function() {
    let Some(scene) = Scene::new().await else { return };
    let mut tokens = tokens(&scene, Instead::Failure("TooLate"));
    let wait = json!({ "Type": "Wait", "Seconds": 1, "End": true });
    let (given, mut held_tokens) = unbounded_channel();
    let held = scene.router.hold(Before::Request, move |_, request| given.send(request["token"].clone()).is_ok());
    let machine = machine(json!({ "A": waiting(json!({ "Next": "B", "End": false })), "B": wait }));
    let execution = scene.engine.execute("one", &machine, &json!({})).await.unwrap();
    let token = held_tokens.recv().await.unwrap();

    scene.engine.succeed(token.as_str().unwrap(), "7").await.unwrap();
    scene.until_in(&execution, "B").await;
    drop(held);
    tokens.recv().await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    assert_eq!((&*end.status, end.output), ("SUCCEEDED", json!(7)));
}

#[tokio::test]
async fn a_task_that_waits_for_a_callback_fails_at_once_with_its_function() {
    let Some(scene) = Scene::new().await else { return };
    let mut tokens = tokens(&scene, Instead::Failure("Broken"));
    let retry = json!([{ "ErrorEquals": ["Broken"], "MaxAttempts": 1, "IntervalSeconds": 0.01 }]);
    let machine = machine(json!({ "A": waiting(json!({ "Retry": retry })) }));

    let (_, end) = run(&scene.engine, "one", &machine, json!({})).await;

    assert_eq!(end.error.as_deref(), Some("Broken"), "{end:?}");
    let [first, second] = [tokens.recv().await.unwrap(), tokens.recv().await.unwrap()];
    assert_ne!(first, second, "a retry has a token of its own");
    assert_refused(&scene.engine, &first, "TaskTimedOut").await;
    assert_refused(&scene.engine, &second, "TaskTimedOut").await;
}

#[tokio::test]
async fn a_callback_can_fail_its_task_and_a_catch_sees_the_error() {
    let Some(scene) = Scene::new().await else { return };
    let mut tokens = tokens(&scene, ANSWERED);
    let catch = json!([{ "ErrorEquals": ["Refused"], "Output": "{% $states.errorOutput %}", "Next": "B" }]);
    let machine = machine(json!({ "A": waiting(json!({ "Catch": catch })), "B": { "Type": "Succeed" } }));
    let execution = scene.engine.execute("one", &machine, &json!({})).await.unwrap();

    scene.engine.fail(&tokens.recv().await.unwrap(), "Refused", "no").await.unwrap();
    let end = scene.engine.until_end(&execution, PATIENCE).await.unwrap();

    assert_eq!(end.output, json!({ "Error": "Refused", "Cause": "no" }), "{end:?}");
}

#[tokio::test]
async fn the_timeout_of_a_task_covers_its_wait_for_a_callback_and_closes_the_token() {
    let Some(scene) = Scene::new().await else { return };
    let mut tokens = tokens(&scene, ANSWERED);
    let catch = json!([{ "ErrorEquals": ["States.Timeout"], "Next": "B" }]);
    let task = waiting(json!({ "TimeoutSeconds": "{% $states.input.seconds %}", "Catch": catch }));
    let wait = json!({ "Type": "Wait", "Seconds": 60, "End": true });
    let machine = machine(json!({ "A": task, "B": wait }));
    let execution = scene.engine.execute("one", &machine, &json!({ "seconds": 1 })).await.unwrap();

    scene.until_in(&execution, "B").await;

    assert_refused(&scene.engine, &tokens.recv().await.unwrap(), "TaskTimedOut").await;
}

#[tokio::test]
async fn the_end_of_an_execution_closes_its_tokens_and_a_redrive_gives_another_one() {
    let Some(scene) = Scene::new().await else { return };
    let mut tokens = tokens(&scene, ANSWERED);
    let machine = machine(json!({ "A": waiting(json!({})) }));
    let stopped = scene.engine.execute("stopped", &machine, &json!({})).await.unwrap();
    let of_stopped = tokens.recv().await.unwrap();
    let (_, timed_out) = run(&scene.engine, "timed", &machine.clone().with_timeout(1), json!({})).await;
    let of_timed_out = tokens.recv().await.unwrap();

    scene.engine.stop(&stopped).await.unwrap();
    assert_refused(&scene.engine, &of_stopped, "TaskTimedOut").await;
    let redriven = scene.engine.redrive(&stopped).await.unwrap();
    let of_redriven = tokens.recv().await.unwrap();
    assert_refused(&scene.engine, &of_stopped, "TaskTimedOut").await;
    scene.engine.succeed(&of_redriven, "7").await.unwrap();
    let end = scene.engine.until_end(&redriven, PATIENCE).await.unwrap();

    assert_eq!(timed_out.status, "TIMED_OUT");
    assert_refused(&scene.engine, &of_timed_out, "TaskTimedOut").await;
    assert_eq!(end.output, json!(7), "{end:?}");
}

#[tokio::test]
async fn a_token_that_was_never_given_is_told_from_what_is_no_token() {
    let Some(engine) = engine().await else { return };

    assert_refused(&engine, &task_token("a-machine"), "TaskDoesNotExist").await;
    for text in ["", "no token", "e30="] {
        assert_refused(&engine, text, "InvalidToken").await;
    }
}
