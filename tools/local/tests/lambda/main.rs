//! Tests of what Lambda does to a function, on a real process: deadlines, crashes, freezes,
//! environments.

#![allow(clippy::disallowed_methods, reason = "the tests wait for processes")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[cfg(target_os = "linux")]
mod freezing;
mod invoke_api;
mod managed;
mod scene;
mod snapstart;

use lambda_lock_local::{Function, Lambda, Outcome};
use scene::{LONG, NAME, SHORT, Scene, answer, begin};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn a_cold_environment_answers_and_then_a_warm_one_with_its_own_log() {
    let scene = Scene::new(LONG).await;
    let cold = scene.invoke(json!({ "key": "k", "steps": [1] })).await;
    let owner = answer(&cold)["owner"].as_str().unwrap().to_owned();
    assert!(owner.starts_with(&format!("demo-function:$LATEST/{}/", cold.request_id)), "{owner}");
    assert!(cold.cold_start && cold.init.is_some() && cold.first_answer > cold.init, "{cold:?}");
    assert!(cold.logs.contains("step 0 of k\""), "{}", cold.logs);
    assert!(!cfg!(target_os = "linux") || cold.max_rss_kb > Some(1000), "{cold:?}");

    let warm = scene.invoke(json!({ "key": "another", "steps": [1] })).await;
    assert!(!warm.cold_start && warm.init.is_none() && warm.first_answer.is_none(), "{warm:?}");
    assert_eq!(warm.environment, cold.environment);
    assert!(warm.logs.contains("step 0 of another\"") && !warm.logs.contains("of k"), "{}", warm.logs);
    assert!(answer(&warm)["fencingToken"].as_u64() > Some(0));
}

#[tokio::test]
async fn at_the_deadline_the_process_is_killed_and_the_next_invocation_starts_another_one() {
    let scene = Scene::new(SHORT).await;
    let killed = scene.invoke(json!({ "key": "k", "steps": [10, 60_000, 1] })).await;
    assert_eq!(killed.outcome, Outcome::TimedOut, "{killed:?}");
    assert!(killed.duration >= SHORT, "{killed:?}");
    assert!(killed.logs.contains("step 1 of k\"") && !killed.logs.contains("step 2"), "{}", killed.logs);
    assert_eq!(scene.lambda.process(killed.environment), None);
    // Uses another key, because the killed process still holds its lock.
    let next = scene.invoke(json!({ "key": "another" })).await;
    assert_eq!(answer(&next)["steps"], 0);
    assert!(next.cold_start);
    assert_eq!(next.environment, killed.environment);
}

#[tokio::test]
async fn the_deadline_counts_from_delivery_and_the_function_gets_it() {
    let scene = Scene::new(LONG).await;
    for _cold_and_warm in 0..2 {
        let before = epoch_millis();
        let invocation = scene.invoke(json!({ "key": "k" })).await;
        let deadline = answer(&invocation)["deadlineAt"].as_u64().unwrap() - 30_000;
        let init = invocation.init.unwrap_or_default().as_millis() as u64;
        assert!((before + init..=epoch_millis()).contains(&deadline), "{before} + {init} … {deadline}");
    }
}

fn epoch_millis() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test]
async fn a_crash_is_reported_and_the_next_invocation_starts_another_process() {
    let scene = Scene::new(LONG).await;
    let crashed = scene.invoke(json!({ "key": "k", "steps": [1, 1], "crashAt": 1 })).await;
    assert_eq!(crashed.outcome, Outcome::Exited("exit status 70".to_owned()));
    assert!(crashed.logs.contains("step 1 of k crashes"), "{}", crashed.logs);
    assert!(scene.invoke(json!({ "key": "another" })).await.cold_start);
}

/// The line is written where the panic begins, so it does not depend on whether the process ends by it.
#[tokio::test]
async fn a_panic_is_a_line_of_json_at_error_which_alarms_count() {
    let scene = Scene::new(LONG).await;
    let logs = scene.invoke(json!({ "key": "k", "steps": [1], "panicAt": 0 })).await.logs;
    let lines = logs.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let said: Vec<_> = lines.filter(|line| line["level"] == "ERROR").map(|line| line["message"].to_string()).collect();
    assert!(
        said[0].starts_with("\"the function panicked at ") && said[0].contains("as the event asked for"),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_process_killed_during_or_between_invocations_is_replaced() {
    let scene = Scene::new(LONG).await;
    let working = begin(&scene, json!({ "key": "k", "steps": [60_000] }));
    scene.until_logged("step 0 of k").await;
    scene.lambda.kill(scene.only()).unwrap();
    assert_eq!(working.await.unwrap().outcome, Outcome::Exited("signal: killed".to_owned()));

    answer(&scene.invoke(json!({ "key": "another" })).await);
    scene.lambda.kill(scene.only()).unwrap();
    let next = scene.invoke(json!({ "key": "another" })).await;
    answer(&next);
    assert!(next.cold_start);
}

#[tokio::test]
async fn an_error_has_its_name_and_the_process_stays() {
    let scene = Scene::new(LONG).await;
    let failed = scene.invoke(json!({ "key": "" })).await;
    let Outcome::Error { error_type, message } = &failed.outcome else { panic!("{failed:?}") };
    assert_eq!(error_type, "InvalidRequest");
    assert!(!message.is_empty());
    assert!(!scene.invoke(json!({ "key": "k" })).await.cold_start);
}

#[tokio::test]
async fn two_invocations_at_once_get_two_environments_and_later_ones_reuse_them() {
    let scene = Scene::new(LONG).await;
    let first = begin(&scene, json!({ "key": "a", "steps": [60_000] }));
    scene.until_logged("step 0 of a").await;
    let second = scene.invoke(json!({ "key": "b" })).await;
    let third = scene.invoke(json!({ "key": "c" })).await;
    assert!(answer(&second).is_object() && second.cold_start);
    assert!(!third.cold_start);
    assert_eq!(third.environment, second.environment);
    let environments = scene.lambda.environments(NAME);
    assert_eq!(environments.len(), 2);
    assert_eq!(environments[1], second.environment);
    assert!(!first.is_finished());
    assert!(scene.lambda.environments("nothing").is_empty());
}

#[tokio::test]
async fn a_function_that_cannot_start_says_why_and_nothing_was_delivered() {
    let scene = Scene::with(LONG, &[]).await;
    let failed = scene.invoke(json!({ "key": "k" })).await;
    let Outcome::InitFailed(why) = &failed.outcome else { panic!("{failed:?}") };
    assert!(why.starts_with("Runtime.ExitError: RequestId: ") && why.ends_with("exit status 1"), "{why}");
    assert!(failed.logs.contains("LOCK_TABLE is not set"), "{}", failed.logs);
    assert_eq!((failed.duration, failed.init), (Duration::ZERO, None));
}

#[tokio::test]
async fn a_function_has_the_variables_that_lambda_sets_and_its_own_and_no_others() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lambda/says-its-environment");
    let function = Function {
        name: "env".to_owned(),
        binary: script.clone(),
        environment: [("STAGE", "test"), ("TZ", "CET")].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        timeout: LONG,
        memory_mb: 256,
        ..Function::default()
    };
    let said = Lambda::start(vec![function]).await.unwrap().invoke("env", "{}").await.unwrap();
    assert!(matches!(&said.outcome, Outcome::InitFailed(why) if why.ends_with("exit status 3")), "{said:?}");
    for line in [
        "STAGE=test",
        "TZ=CET",
        "AWS_REGION=eu-central-1",
        "AWS_ACCESS_KEY_ID=local",
        "AWS_SECRET_ACCESS_KEY=local",
        "AWS_SESSION_TOKEN=local",
        "AWS_LAMBDA_FUNCTION_NAME=env",
        "AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=256",
        "AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/env",
        "_HANDLER=bootstrap",
        script.canonicalize().unwrap().parent().unwrap().to_str().unwrap(),
    ] {
        assert!(said.logs.lines().any(|said| said == line), "{line} in\n{}", said.logs);
    }
    assert!(said.logs.contains("AWS_LAMBDA_RUNTIME_API=127.0.0.1:"), "{}", said.logs);
    assert!(said.logs.contains("AWS_LAMBDA_INITIALIZATION_TYPE=on-demand"), "{}", said.logs);
    assert!(!said.logs.contains("AWS_LAMBDA_MAX_CONCURRENCY"), "{}", said.logs);
    // Cargo has set such variables for this test.
    assert!(!said.logs.contains("CARGO"), "{}", said.logs);
}

#[tokio::test]
async fn a_missing_binary_is_reported_at_the_start() {
    let missing = Function {
        name: NAME.to_owned(),
        binary: "no/such/binary".into(),
        environment: [].into(),
        timeout: LONG,
        memory_mb: 128,
        ..Function::default()
    };
    assert!(Lambda::start(vec![missing]).await.unwrap_err().to_string().contains("no/such/binary"));
}

#[tokio::test]
async fn a_caller_that_does_not_wait_leaves_the_invocation_alone() {
    let scene = Scene::new(LONG).await;
    let impatient = begin(&scene, json!({ "key": "k", "steps": [200] }));
    scene.until_logged("step 0 of k").await;
    impatient.abort();
    // The environment is busy and the lock is held until the first invocation ends.
    let next = scene.invoke(json!({ "key": "k" })).await;
    answer(&next);
    assert_eq!(scene.lambda.environments(NAME).len(), 2);
}
