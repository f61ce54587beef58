//! The binary as the template deploys it: its permissions, simulated accidents and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use lambda_lock_local::authorize::Fate;
use lambda_lock_local::deployed::{assert_does_not_start, assert_error, template};
use lambda_lock_local::{Expansion, Outcome, Sample};
use serde_json::{Value, json};
use std::path::Path;

const NAME: &str = "sample-work";

async fn deploy(template: &Expansion) -> Sample {
    deploy_as_it_is(&template.with(NAME, &[("ALLOW_SIMULATE", "true")])).await
}

async fn deploy_as_it_is(template: &Expansion) -> Sample {
    Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_sample-work"))]).await.unwrap()
}

fn add(simulate: Value) -> Value {
    json!({
        "step": "add", "counter": "customer-7", "fencingToken": 7, "writer": "me",
        "input": { "key": "customer-7", "simulate": simulate },
    })
}

#[tokio::test]
async fn a_step_works_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);
    let sample = deploy(&template).await;
    assert_eq!(sample.ask(NAME, &add(json!({}))).await, Ok(json!({ "value": 1 })));
    assert_eq!(&sample.proxy.used(NAME), allows, "used and allowed actions differ");

    let mut less = template.clone();
    less.functions.get_mut(NAME).unwrap().allows.clear();
    assert_error(deploy(&less).await.ask(NAME, &add(json!({}))).await, "WorkFailed", "dynamodb:UpdateItem");
}

#[tokio::test]
async fn a_step_crashes_and_fails_as_its_input_says_and_the_next_one_works() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let crashed = sample.lambda.invoke(NAME, &add(json!({ "crashAt": "add" })).to_string()).await.unwrap();
    assert_eq!(crashed.outcome, Outcome::Exited("exit status 70".to_owned()));
    assert_error(sample.ask(NAME, &add(json!({ "failAt": "add" }))).await, "WorkFailed", "as the input asked for");
    assert_eq!(sample.ask(NAME, &add(json!({}))).await, Ok(json!({ "value": 1 })), "the failed steps did not count");
}

#[tokio::test]
async fn the_template_allows_no_simulated_failure() {
    let Some(template) = template() else { return };
    let sample = deploy_as_it_is(&template).await;
    for simulate in [json!({ "crashAt": "add" }), json!({ "failAt": "add" }), json!({ "stepMillis": 1 })] {
        assert_error(sample.ask(NAME, &add(simulate)).await, "InvalidRequest", "ALLOW_SIMULATE");
    }
}

#[tokio::test]
async fn a_table_that_does_not_answer_is_work_that_failed() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    sample.proxy.decide(|_| Fate::Swallowed);
    assert_error(sample.ask(NAME, &add(json!({}))).await, "WorkFailed", "did not respond in time");
}

#[tokio::test]
async fn a_missing_table_name_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.with(NAME, &[("WORK_TABLE", "")])).await;
    let stopped = sample.lambda.invoke(NAME, &add(json!({})).to_string()).await.unwrap();
    assert_does_not_start(&stopped, "WORK_TABLE is not set");
}
