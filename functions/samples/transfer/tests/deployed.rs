//! The binary as the template deploys it: its environment, permissions, logs and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "a lock is released while the function waits")]

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockClient;
use lambda_lock_local::authorize::{Call, Fate};
use lambda_lock_local::deployed::{
    MARK, NUMBER_MARK, answered, assert_counted, assert_does_not_start, assert_error, assert_tells_nothing, template,
};
use lambda_lock_local::{Expansion, Sample, client};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const NAME: &str = "transfer";

/// Deploys the function, with two accounts.
async fn deploy(template: &Expansion) -> Sample {
    let sample = Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_transfer"))]).await.unwrap();
    for account in ["a", "b"] {
        let put = client(sample.dynamodb.endpoint()).put_item().table_name("AccountsTable");
        let put = put.item("accountId", AttributeValue::S(account.to_owned()));
        put.item("balance", AttributeValue::N(u64::MAX.div_euclid(3).to_string())).send().await.unwrap();
    }
    sample
}

fn transfer() -> Value {
    json!({ "transferId": "t-1", "from": "a", "to": "b", "amount": 30 })
}

/// A transfer that has to wait for one of its accounts.
async fn after_another_holder(sample: &Sample) -> Result<Value, (String, String)> {
    let locks = LockClient::builder(client(sample.dynamodb.endpoint()), "LockTable").build().unwrap();
    let other = locks.acquire("account/b").lease(Duration::from_secs(60)).try_once().await.unwrap().granted().unwrap();
    let releases = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        other.release().await.unwrap();
    };
    let request = transfer();
    tokio::join!(sample.ask(NAME, &request), releases).0
}

#[tokio::test]
async fn a_transfer_that_waits_works_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);
    let sample = deploy(&template).await;
    assert_eq!(after_another_holder(&sample).await.unwrap()["replayed"], false);
    assert_eq!(sample.ask(NAME, &transfer()).await.unwrap()["replayed"], true);
    assert_eq!(&sample.proxy.used(NAME), allows, "used and allowed actions differ");
}

#[tokio::test]
async fn without_any_one_of_its_permissions_no_transfer_is_done() {
    let Some(template) = template() else { return };
    for missing in template.allows(NAME) {
        let sample = deploy(&template.without(NAME, missing)).await;
        let (error_type, message) = after_another_holder(&sample).await.unwrap_err();
        assert!(["LockTableError", "WorkFailed"].contains(&&*error_type), "{missing}: {error_type}: {message}");
    }
}

#[tokio::test]
async fn a_transfer_between_free_accounts_sends_five_requests_and_a_replay_six() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let sent = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&sent);
    sample.proxy.decide(move |_: &Call| {
        counted.fetch_add(1, Ordering::SeqCst);
        Fate::Answered
    });
    for (replayed, requests) in [(false, 5), (true, 6)] {
        assert_eq!(sample.ask(NAME, &transfer()).await.unwrap()["replayed"], replayed);
        assert_eq!(sent.swap(0, Ordering::SeqCst), requests, "replayed: {replayed}");
    }
}

#[tokio::test]
async fn a_wrong_variable_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    for name in ["ACCOUNTS_TABLE", "TRANSFERS_TABLE", "LOCK_TABLE"] {
        let sample = deploy(&template.with(NAME, &[(name, "")])).await;
        let stopped = sample.lambda.invoke(NAME, &transfer().to_string()).await.unwrap();
        assert_does_not_start(&stopped, &format!("{name} is not set"));
    }
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let mut marked = transfer();
    marked["amount"] = NUMBER_MARK.into();
    let mut wrong = transfer();
    wrong["amount"] = MARK.into();
    let refused = sample.lambda.invoke(NAME, &wrong.to_string()).await.unwrap();
    let poor = sample.lambda.invoke(NAME, &marked.to_string()).await.unwrap();
    let logs = poor.logs.clone() + &refused.logs;
    assert_error(answered(refused), "InvalidRequest", "amount is malformed");
    assert_error(answered(poor), "WorkFailed", "free again");
    assert_tells_nothing(&logs);
    assert_counted(&logs);
}
