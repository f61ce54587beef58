//! The binary as the template deploys it: its permissions, its prefix, its logs.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockClient;
use lambda_lock_local::authorize::{Role, task_token};
use lambda_lock_local::deployed::{MARK, assert_tells_nothing};
use lambda_lock_local::{Expansion, Sample, TaskTokens, client};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NAME: &str = "lock-waker";
const STATE_MACHINE: &str = "exclusive-work";

/// The function on the lock table, and Step Functions.
struct Scene {
    sample: Sample,
    tokens: TaskTokens,
    dynamodb: aws_sdk_dynamodb::Client,
    locks: LockClient,
}

/// Returns the template with the function. `None` where the tools for it are missing.
fn template(parameters: &[&str]) -> Option<Expansion> {
    Expansion::expand_with(&[parameters, &["WakeByStream=true"]].concat()).unwrap()
}

/// Returns the actions of the function itself. Lambda reads the stream.
fn own(template: &Expansion) -> Role {
    template.functions[NAME].allows.iter().filter(|grant| !grant.resource.contains("/stream/")).cloned().collect()
}

impl Scene {
    async fn deploy(template: &Expansion) -> Self {
        let tokens = TaskTokens::start().await.unwrap();
        let sample = Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_lock-waker"))]).await.unwrap();
        sample.proxy.forward_states_to(tokens.endpoint()).unwrap();
        let dynamodb = client(sample.dynamodb.endpoint());
        let locks = LockClient::builder(dynamodb.clone(), "LockTable").build().unwrap();
        Self { sample, tokens, dynamodb, locks }
    }

    /// Somebody holds the lock, an execution sleeps behind it, and the lock is released. Returns the event of that change, and the
    /// task token.
    async fn released(&self, key: &str) -> (Value, String) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let attempt = || self.locks.acquire(key).lease(Duration::from_secs(300)).data(MARK);
        let lock = attempt().try_once().await.unwrap().granted().unwrap();
        assert!(attempt().between_calls().try_once().await.unwrap().refused().is_some());
        let item = self.dynamodb.put_item().table_name("LockTable").item("key", text(&format!("wake/{key}/1")));
        let token = task_token(STATE_MACHINE);
        item.item("taskToken", text(&token)).send().await.unwrap();
        lock.release().await.unwrap();
        let row = self.dynamodb.get_item().table_name("LockTable").key("key", text(key)).send().await.unwrap();
        let image: Value = row.item.unwrap().iter().map(|(name, value)| (name.clone(), json_of(value))).collect();
        let mut event: Value = serde_json::from_str(include_str!("events/stream.json")).unwrap();
        event["Records"][0]["dynamodb"]["Keys"] = json!({ "key": { "S": key } });
        event["Records"][0]["dynamodb"]["NewImage"] = image;
        (event, token)
    }

    async fn has_item(&self, key: &str) -> bool {
        let key = AttributeValue::S(format!("wake/{key}/1"));
        self.dynamodb.get_item().table_name("LockTable").key("key", key).send().await.unwrap().item.is_some()
    }
}

fn json_of(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::N(number) => json!({ "N": number }),
        AttributeValue::B(_) => json!({ "B": MARK }),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn somebody_is_woken_with_exactly_what_the_template_allows() {
    let Some(template) = template(&[]) else { return };
    let scene = Scene::deploy(&template).await;
    let (event, token) = scene.released("k").await;
    assert_eq!(scene.sample.ask(NAME, &event).await, Ok(json!({ "locks": 1 })));
    assert_eq!(scene.tokens.take_woken(), [token]);
    assert!(!scene.has_item("k").await);
    assert_eq!(scene.sample.proxy.used(NAME), own(&template), "used and allowed actions differ");
}

#[tokio::test]
async fn without_any_one_permission_nobody_is_woken_and_the_batch_is_over() {
    let Some(template) = template(&[]) else { return };
    let permissions = own(&template);
    assert_eq!(permissions.len(), 2, "{permissions:?}");
    for permission in permissions {
        let scene = Scene::deploy(&template.without(NAME, &permission)).await;
        let (event, _) = scene.released("k").await;
        let invocation = scene.sample.lambda.invoke(NAME, &event.to_string()).await.unwrap();
        let deletes = permission.action == "dynamodb:DeleteItem";
        let what = if deletes { "wake/" } else { "states:SendTaskSuccess" };
        let is_told = ["LockTableError", "ERROR", what].iter().all(|said| invocation.logs.contains(said));
        assert!(is_told, "somebody has to repair the role: {}", invocation.logs);
        assert_eq!(scene.has_item("k").await, deletes);
        assert_eq!(scene.tokens.take_woken(), [""; 0]);
    }
}

#[tokio::test]
async fn with_a_key_prefix_the_role_allows_the_wake_items_of_its_own_locks() {
    let Some(template) = template(&["LockKeyPrefix=orders/"]) else { return };
    let scene = Scene::deploy(&template).await;
    for (key, is_woken) in [("orders/k", true), ("billing/k", false)] {
        let (event, token) = scene.released(key).await;
        assert_eq!(scene.sample.ask(NAME, &event).await, Ok(json!({ "locks": u64::from(is_woken) })));
        assert_eq!(scene.tokens.take_woken(), if is_woken { vec![token] } else { vec![] });
    }
    assert_eq!(scene.sample.proxy.used(NAME), own(&template), "used and allowed actions differ");

    let scene = Scene::deploy(&template.with(NAME, &[("LOCK_KEY_PREFIX", "")])).await;
    let (event, _) = scene.released("billing/k").await;
    assert_eq!(scene.sample.ask(NAME, &event).await, Ok(json!({ "locks": 1 })));
    assert_eq!((scene.tokens.take_woken(), scene.has_item("billing/k").await), (vec![], true), "its role refuses it");
}

#[tokio::test]
async fn a_table_that_exists_already_is_read_by_the_label_of_its_stream() {
    let label = "2026-07-01T12:00:00.000";
    let stream = format!("ExistingLockTableStream={label}");
    let Some(template) = template(&["ExistingLockTable=locks", &stream]) else { return };
    let of_stream = template.functions[NAME].allows.iter().filter(|grant| grant.resource.contains("/stream/"));
    let of_stream: Vec<_> = of_stream.map(|grant| grant.resource.as_str()).collect();
    assert_eq!(of_stream, [&format!("arn:aws:dynamodb:eu-central-1:123456789012:table/locks/stream/{label}"); 4]);
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template(&[]) else { return };
    let scene = Scene::deploy(&template.loud(NAME)).await;
    let (good, token) = scene.released("k").await;
    let mut malformed = good.clone();
    malformed["Records"][0]["dynamodb"]["NewImage"]["ownerName"] = json!({ "N": MARK });
    let mut logs = String::new();
    let no_event = json!({ "Records": MARK });
    for payload in [good.to_string(), malformed.to_string(), no_event.to_string(), format!("{MARK} {{")] {
        logs += &scene.sample.lambda.invoke(NAME, &payload).await.unwrap().logs;
    }
    assert!(logs.contains("InvalidRecord") && logs.contains("InvalidRequest"), "{logs}");
    assert!(logs.contains(r#""key":"k""#), "{logs}");
    assert_tells_nothing(&logs);
    assert!(!logs.contains(&token), "a task token ends the wait of an execution: {logs}");
}
