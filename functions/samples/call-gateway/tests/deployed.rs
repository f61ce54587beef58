//! The binary as the template deploys it: its environment, permissions, logs and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use lambda_lock::LockClient;
use lambda_lock_local::deployed::{
    MARK, answered, assert_counted, assert_does_not_start, assert_error, assert_tells_nothing, first_answer_lost,
    template,
};
use lambda_lock_local::{Expansion, LimitedGateway, Sample, client};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NAME: &str = "call-gateway";

async fn deploy(template: &Expansion) -> Sample {
    Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_call-gateway"))]).await.unwrap()
}

fn request() -> Value {
    json!({ "request": { "n": 7 } })
}

/// All places are held, but the one with this number.
async fn all_but(sample: &Sample, free: u32) {
    let locks = LockClient::builder(client(sample.dynamodb.endpoint()), "LockTable").build().unwrap();
    for place in (0..5).filter(|place| *place != free) {
        let held = locks.try_acquire(format!("gateway/{place}")).lease(Duration::from_secs(60)).await.unwrap();
        // Stays held.
        drop(held.granted().unwrap().save());
    }
}

#[tokio::test]
async fn a_call_whose_first_answer_is_lost_works_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);
    let sample = deploy(&template).await;
    sample.proxy.decide(first_answer_lost());
    sample.ask(NAME, &request()).await.unwrap();
    all_but(&sample, 3).await;
    // One of these tries another place first. An environment first tries the place that it had last.
    for _ in 0..2 {
        sample.ask(NAME, &request()).await.unwrap();
    }
    sample.lambda.kill(sample.lambda.environments(NAME)[0]).unwrap();
    for _ in 0..20 {
        let called = sample.lambda.invoke(NAME, &request().to_string()).await.unwrap();
        assert_eq!(answered(called.clone()).unwrap()["place"], 3);
        sample.lambda.kill(called.environment).unwrap();
    }
    assert_eq!(&sample.proxy.used(NAME), allows, "used and allowed actions differ");
}

#[tokio::test]
async fn without_a_permission_to_write_or_to_look_a_call_fails() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);
    assert_eq!(allows.len(), 3, "{allows:?}");
    for missing in allows {
        let sample = deploy(&template.without(NAME, missing)).await;
        if missing.action == "dynamodb:BatchGetItem" {
            all_but(&sample, 5).await;
        } else {
            sample.proxy.decide(first_answer_lost());
        }
        let called = sample.ask(NAME, &request()).await;
        if missing.action == "dynamodb:GetItem" {
            // The function cannot learn the outcome of the write whose response was lost. It releases that place, and
            // takes one that it sees free.
            called.unwrap();
        } else {
            assert_error(called, "LockTableError", "gateway");
        }
    }
}

#[tokio::test]
async fn the_gateway_of_the_template_is_called_with_the_number_of_the_place() {
    let Some(template) = template() else { return };
    let gateway = LimitedGateway::start(1).await.unwrap();
    let sample = deploy(&template.with(NAME, &[("GATEWAY_URL", gateway.url())])).await;
    all_but(&sample, 4).await;
    let answer = sample.ask(NAME, &request()).await.unwrap();
    assert_eq!((&answer["place"], &answer["response"]), (&json!(4), &json!({ "done": { "n": 7 } })));
}

#[tokio::test]
async fn a_wrong_variable_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    for (name, value, says) in [
        ("GATEWAY_CONNECTIONS", "0", "GATEWAY_CONNECTIONS is "),
        ("GATEWAY_URL", "gateway.example.com", "GATEWAY_URL is "),
        ("LOCK_TABLE", "", "LOCK_TABLE is not set"),
    ] {
        let sample = deploy(&template.with(NAME, &[(name, value)])).await;
        let stopped = sample.lambda.invoke(NAME, &request().to_string()).await.unwrap();
        assert_does_not_start(&stopped, says);
    }
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let ran = sample.lambda.invoke(NAME, &json!({ "request": MARK }).to_string()).await.unwrap();
    let broken = sample.lambda.invoke(NAME, &format!("{MARK} {{")).await.unwrap();
    let logs = ran.logs.clone() + &broken.logs;
    assert!(answered(ran).is_ok(), "{logs}");
    assert!(logs.contains("nobody is called"), "the log lines of the work are missing: {logs}");
    assert_tells_nothing(&logs);
    assert_counted(&logs);
}
