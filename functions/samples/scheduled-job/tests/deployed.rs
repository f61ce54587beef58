//! The binary as the template deploys it: its environment, permissions, logs and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the tests invoke beside each other")]

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::authorize::{Fate, Role};
use lambda_lock_local::deployed::{
    MARK, answered, assert_counted, assert_does_not_start, assert_error, assert_tells_nothing, first_answer_lost,
    metrics, template,
};
use lambda_lock_local::{Expansion, Invocation, Sample, client};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "scheduled-job";
/// The name of the lock table in the embedded DynamoDB.
const TABLE: &str = "LockTable";

async fn deploy(template: &Expansion) -> Sample {
    Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_scheduled-job"))]).await.unwrap()
}

/// Returns the actions of the function itself. Lambda sends to the dead-letter queue.
fn own(role: &Role) -> Role {
    role.iter().filter(|grant| grant.action.starts_with("dynamodb:")).cloned().collect()
}

async fn tick(sample: &Sample) -> Invocation {
    sample.lambda.invoke(NAME, &json!({ "source": "aws.events" }).to_string()).await.unwrap()
}

#[tokio::test]
async fn a_tick_whose_first_answer_is_lost_works_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    sample.proxy.decide(first_answer_lost());
    assert_eq!(answered(tick(&sample).await).unwrap()["ran"], true);
    assert_eq!(sample.proxy.used(NAME), own(template.allows(NAME)), "used and allowed actions differ");
}

#[tokio::test]
async fn without_any_one_of_its_permissions_a_tick_fails() {
    let Some(template) = template() else { return };
    for missing in &own(template.allows(NAME)) {
        let less = template.without(NAME, missing);
        let sample = deploy(&less).await;
        sample.proxy.decide(first_answer_lost());
        // Without GetItem the function cannot learn the outcome of the write whose response was
        // lost.
        let error_type = if missing.action == "dynamodb:GetItem" { "LockUnknown" } else { "LockTableError" };
        assert_error(answered(tick(&sample).await), error_type, "job/scheduled-job");
    }
}

#[tokio::test]
async fn one_of_sixteen_ticks_at_once_runs_and_the_others_name_it() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    // Starts sixteen environments first, so that the ticks run at the same time and do not wait for
    // processes.
    at_once(&sample).await;
    // Delays all responses, so that the job and its lock last long enough.
    sample.proxy.decide(|_| Fate::AnsweredAfter(Duration::from_millis(700)));
    let (mut ran, mut holders) = (Vec::new(), Vec::new());
    for invocation in at_once(&sample).await {
        assert!(!invocation.cold_start, "{invocation:?}");
        let request = invocation.request_id.clone();
        let answer = answered(invocation).unwrap();
        match answer["ran"].as_bool().unwrap() {
            true => ran.push(request),
            false => holders.push(answer["holder"].as_str().unwrap().to_owned()),
        }
    }
    assert_eq!((ran.len(), holders.len()), (1, 15), "{ran:?} {holders:?}");
    let holder = format!("scheduled-job:$LATEST/{}/", ran[0]);
    assert!(holders.iter().all(|one| one.starts_with(&holder)), "{holder} ran, {holders:?}");
}

async fn at_once(sample: &Sample) -> Vec<Invocation> {
    let ticks: Vec<_> = (0..16)
        .map(|_| {
            let lambda = sample.lambda.clone();
            tokio::spawn(async move { lambda.invoke(NAME, "{}").await.unwrap() })
        })
        .collect();
    let mut invocations = Vec::new();
    for tick in ticks {
        invocations.push(tick.await.unwrap());
    }
    invocations
}

#[tokio::test]
async fn an_acquire_that_fails_is_reported_by_name() {
    let Some(mut template) = template() else { return };
    template.functions.get_mut(NAME).unwrap().timeout_seconds = 4;
    let sample = deploy(&template).await;
    sample.proxy.decide(|_| Fate::Swallowed);
    assert_error(answered(tick(&sample).await), "LockUnknown", "job/scheduled-job");

    sample.proxy.decide(|_| Fate::Answered);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let row = client(sample.dynamodb.endpoint()).put_item().table_name(TABLE).item("key", text("job/scheduled-job"));
    row.item("recordVersionNumber", text("x")).item("ownerName", text("y")).send().await.unwrap();
    assert_error(answered(tick(&sample).await), "InvalidRecord", "leaseDuration");

    template.tables.clear();
    assert_error(answered(tick(&deploy(&template).await).await), "LockTableError", "cannot be used");
}

#[tokio::test]
async fn a_name_that_cannot_be_a_key_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    let long = "n".repeat(2045);
    for (name, value, says) in
        [("JOB_NAME", long.as_str(), "JOB_NAME is too long"), ("LOCK_TABLE", "", "LOCK_TABLE is not set")]
    {
        let stopped = tick(&deploy(&template.with(NAME, &[(name, value)])).await).await;
        assert_does_not_start(&stopped, says);
    }
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let event = json!({ "detail": { "note": MARK } }).to_string();
    let ran = sample.lambda.invoke(NAME, &event).await.unwrap();
    let broken = sample.lambda.invoke(NAME, &format!("{MARK} {{")).await.unwrap();
    let logs = ran.logs.clone() + &broken.logs;
    assert_eq!(answered(ran).unwrap()["ran"], true);
    assert!(logs.contains("the first step"), "the log lines of the job are missing: {logs}");
    assert_tells_nothing(&logs);
    assert_counted(&logs);
}

#[tokio::test]
async fn once_per_tick_works_with_the_same_role_and_sends_as_many_requests_as_the_manual_says() {
    let Some(template) = Expansion::expand_with(&["OncePerTick=true"]).unwrap() else { return };
    let sample = deploy(&template).await;
    let event = json!({ "source": "aws.events", "time": "2026-07-01T12:00:00Z" }).to_string();
    // The sample's own work renews once.
    for (ran, requests) in [(true, 5), (false, 3)] {
        let done = sample.lambda.invoke(NAME, &event).await.unwrap();
        assert_eq!(metrics(&done.logs)[0]["Requests"], requests);
        assert_eq!(answered(done).unwrap()["ran"], ran);
    }
    assert_error(answered(tick(&sample).await), "InvalidRequest", "time is missing");
}
