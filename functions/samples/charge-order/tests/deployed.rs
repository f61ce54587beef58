//! The binary as the template deploys it: its environment, permissions, logs and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use lambda_lock_local::authorize::Fate;
use lambda_lock_local::deployed::{
    MARK, NUMBER_MARK, answered, assert_counted, assert_does_not_start, assert_error, assert_tells_nothing,
    first_answer_lost, template,
};
use lambda_lock_local::{Expansion, Sample};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const NAME: &str = "charge-order";

async fn deploy(template: &Expansion) -> Sample {
    Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_charge-order"))]).await.unwrap()
}

fn order() -> Value {
    json!({ "orderId": "o-1", "amount": 1250, "currency": "EUR" })
}

#[tokio::test]
async fn an_order_whose_first_answer_is_lost_is_charged_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);

    let sample = deploy(&template).await;
    sample.proxy.decide(first_answer_lost());
    assert_eq!(sample.ask(NAME, &order()).await.unwrap()["replayed"], false);
    assert_eq!(sample.ask(NAME, &order()).await.unwrap()["replayed"], true);
    assert_eq!(&sample.proxy.used(NAME), allows, "used and allowed actions differ");
}

#[tokio::test]
async fn the_template_allows_no_simulated_failure() {
    let Some(template) = template() else { return };
    let mut crashing = order();
    crashing["simulate"] = json!({ "crashAt": "charge" });
    assert_error(deploy(&template).await.ask(NAME, &crashing).await, "InvalidRequest", "ALLOW_SIMULATE");
}

#[tokio::test]
async fn a_first_call_sends_five_requests_and_a_replay_one() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let sent = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&sent);
    sample.proxy.decide(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Fate::Answered
    });
    for (replayed, requests) in [(false, 5), (true, 1)] {
        assert_eq!(sample.ask(NAME, &order()).await.unwrap()["replayed"], replayed);
        assert_eq!(sent.swap(0, Ordering::SeqCst), requests, "replayed: {replayed}");
    }
}

#[tokio::test]
async fn without_any_one_of_its_permissions_no_order_is_charged() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);
    assert_eq!(allows.len(), 3, "{allows:?}");
    for missing in allows {
        let less = template.without(NAME, missing);
        let sample = deploy(&less).await;
        sample.proxy.decide(first_answer_lost());
        // Without GetItem the function cannot learn the outcome of the write whose response was
        // lost.
        let error_type = if missing.action == "dynamodb:GetItem" { "LockUnknown" } else { "LockTableError" };
        assert_error(sample.ask(NAME, &order()).await, error_type, "order/o-1");
    }
}

#[tokio::test]
async fn a_wrong_variable_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    for (name, value, says) in [
        ("ORDERS_TABLE", "", "ORDERS_TABLE is not set"),
        ("PAYMENT_GATEWAY_URL", "pay.example.com", "PAYMENT_GATEWAY_URL is "),
        ("LOCK_TABLE", "", "LOCK_TABLE is not set"),
    ] {
        let sample = deploy(&template.with(NAME, &[(name, value)])).await;
        let stopped = sample.lambda.invoke(NAME, &order().to_string()).await.unwrap();
        assert_does_not_start(&stopped, says);
    }
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let mut marked = order();
    marked["amount"] = NUMBER_MARK.into();
    let ran = sample.lambda.invoke(NAME, &marked.to_string()).await.unwrap();
    let mut wrong = order();
    wrong["currency"] = MARK.into();
    let refused = sample.lambda.invoke(NAME, &wrong.to_string()).await.unwrap();
    let logs = ran.logs.clone() + &refused.logs;
    assert_eq!(answered(ran).unwrap()["replayed"], false);
    assert_error(answered(refused), "InvalidRequest", "currency is malformed");
    assert!(logs.contains("record begins"), "the log lines of the work are missing: {logs}");
    assert_tells_nothing(&logs);
    assert_counted(&logs);
}
