//! The binary as the template deploys it: its permissions, a late index, locks that change during the
//! clean-up, logs and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Lock, LockClient};
use lambda_lock_local::authorize::{Call, Fate, Role, task_token};
use lambda_lock_local::deployed::{
    Answer, MARK, assert_counted, assert_error, assert_tells_nothing, template, template_for_existing_table,
};
use lambda_lock_local::{Expansion, Sample, TaskTokens, client};
use lambda_lock_testkit::soon_so;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NAME: &str = "lock-cleaner";
const ENDED: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:7";
const OTHER: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:8";
/// Long enough for what a test does while a response is delayed.
const MEANTIME: Duration = Duration::from_millis(500);

async fn deploy(template: &Expansion) -> Sample {
    // No test here needs the second look.
    let template = template.with(NAME, &[("CLEANUP_SECOND_LOOK_SECONDS", "0")]);
    Sample::deploy(&template, &[Path::new(env!("CARGO_BIN_EXE_lock-cleaner"))]).await.unwrap()
}

/// Returns a lock client that does not use the proxy.
fn locks(sample: &Sample) -> LockClient {
    LockClient::builder(client(sample.dynamodb.endpoint()), "LockTable").build().unwrap()
}

async fn held_by(locks: &LockClient, key: &str, execution: &str) -> Lock {
    let acquire = locks.acquire(key).lease(Duration::from_secs(300)).workflow(execution).try_once();
    acquire.await.unwrap().granted().unwrap()
}

async fn is_free(locks: &LockClient, key: &str) -> bool {
    locks.operator().peek(key).await.unwrap().unwrap().released
}

/// The event of a durable execution, as AWS documents it.
fn durable_status_change(status: &str) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("events/durable-execution.json")).unwrap();
    event["detail"]["status"] = json!(status);
    event
}

/// This execution waited in line for another lock when it ended. Returns what answers for its task token.
async fn waited_in_line(sample: &Sample, key: &str, execution: &str) -> TaskTokens {
    let tokens = TaskTokens::start().await.unwrap();
    sample.proxy.forward_states_to(tokens.endpoint()).unwrap();
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let dynamodb = client(sample.dynamodb.endpoint());
    let tables = dynamodb.list_tables().send().await.unwrap();
    let table = tables.table_names().iter().find(|name| ["LockTable", "locks"].contains(&name.as_str())).unwrap();
    let put = dynamodb.put_item().table_name(table).item("key", text(&format!("wake/{key}/7")));
    let put = put.item("workflow", text(execution)).item("taskToken", text(&task_token("exclusive-work")));
    put.send().await.unwrap();
    tokens
}

async fn clean_up(sample: &Sample) -> Answer {
    let detail = json!({ "executionArn": ENDED, "status": "ABORTED", "redriveCount": 0, "input": MARK });
    sample.ask(NAME, &json!({ "source": "aws.states", "detail": detail })).await
}

/// Records the operations that the function sends to DynamoDB, and delays the response to one of them.
fn delay(sample: &Sample, slow: &'static str) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    sample.proxy.decide(move |call: &Call| {
        let operation = call.needs[0].action.replace("dynamodb:", "");
        let is_slow = operation == slow && !notes.lock().unwrap().contains(&operation);
        notes.lock().unwrap().push(operation);
        if is_slow { Fate::AnsweredAfter(MEANTIME) } else { Fate::Answered }
    });
    seen
}

/// Waits until the function has sent this request.
async fn until(seen: &Mutex<Vec<String>>, operation: &str) {
    soon_so(operation, async || seen.lock().unwrap().iter().any(|one| one == operation)).await;
}

/// Returns the actions of the function itself. Lambda sends to the dead-letter queue.
fn own(role: &Role) -> Role {
    role.iter().filter(|grant| !grant.action.starts_with("sqs:")).cloned().collect()
}

#[tokio::test]
async fn a_clean_up_works_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);

    let sample = deploy(&template).await;
    let locks = locks(&sample);
    let lock = held_by(&locks, "k", ENDED).await.save();
    let _tokens = waited_in_line(&sample, "other", ENDED).await;
    assert_eq!(clean_up(&sample).await, Ok(json!({ "released": 1 })));
    assert!(is_free(&locks, "k").await);
    assert!(locks.resume(lock).await.unwrap_err().is_lost());
    assert_eq!(sample.proxy.used(NAME), own(allows), "used and allowed actions differ");
}

#[tokio::test]
async fn a_clean_up_works_on_a_table_that_exists_already() {
    let Some(template) = template_for_existing_table("locks") else { return };

    let sample = deploy(&template).await;
    let locks = LockClient::builder(client(sample.dynamodb.endpoint()), "locks").build().unwrap();
    let _ = held_by(&locks, "k", ENDED).await.save();
    let _tokens = waited_in_line(&sample, "other", ENDED).await;
    assert_eq!(clean_up(&sample).await, Ok(json!({ "released": 1 })));
    assert!(is_free(&locks, "k").await);
    assert_eq!(sample.proxy.used(NAME), own(template.allows(NAME)), "used and allowed actions differ");
}

/// The index shows all locks of the execution, and the role allows those with the prefix.
#[tokio::test]
async fn with_a_key_prefix_a_clean_up_frees_the_locks_that_its_role_allows_and_does_not_fail_because_of_others() {
    let Some(template) = Expansion::expand_with(&["LockKeyPrefix=orders/"]).unwrap() else { return };
    let sample = deploy(&template).await;
    let locks = locks(&sample);
    for key in ["orders/k", "billing/k"] {
        let _ = held_by(&locks, key, ENDED).await.save();
    }
    let _tokens = waited_in_line(&sample, "orders/other", ENDED).await;
    let _tokens_of_others = waited_in_line(&sample, "billing/other", ENDED).await;

    assert_eq!(clean_up(&sample).await, Ok(json!({ "released": 1 })));

    assert!(is_free(&locks, "orders/k").await && !is_free(&locks, "billing/k").await);
    assert_eq!(sample.proxy.used(NAME), own(template.allows(NAME)), "used and allowed actions differ");
    let reaches_for_all = template.with(NAME, &[("LOCK_KEY_PREFIX", "")]);
    let sample = deploy(&reaches_for_all).await;
    let _ = held_by(&self::locks(&sample), "billing/k", ENDED).await.save();
    assert_error(clean_up(&sample).await, "LockTableError", "access is denied");
}

#[tokio::test]
async fn the_end_of_a_durable_execution_frees_its_locks_with_the_same_permissions() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let locks = locks(&sample);
    let ended = durable_status_change("STOPPED");
    let durable = ended["detail"]["durableExecutionArn"].as_str().unwrap();
    let lock = held_by(&locks, "k", durable).await.save();
    let _ = held_by(&locks, "other", OTHER).await.save();
    let _tokens = waited_in_line(&sample, "another", durable).await;

    assert_eq!(sample.ask(NAME, &durable_status_change("SUCCEEDED")).await, Ok(json!({ "released": 0 })));
    assert_eq!(sample.ask(NAME, &ended).await, Ok(json!({ "released": 1 })));

    assert!(is_free(&locks, "k").await && !is_free(&locks, "other").await);
    assert!(locks.resume(lock).await.unwrap_err().is_lost());
    assert_eq!(sample.proxy.used(NAME), own(template.allows(NAME)), "used and allowed actions differ");
}

#[tokio::test]
async fn without_any_one_of_its_permissions_a_clean_up_fails() {
    let Some(template) = template() else { return };
    let allows = own(template.allows(NAME));
    assert_eq!(allows.len(), 5);
    for missing in &allows {
        let sample = deploy(&template.without(NAME, missing)).await;
        let _ = held_by(&locks(&sample), "k", ENDED).await.save();
        let _tokens = waited_in_line(&sample, "other", ENDED).await;
        assert_error(clean_up(&sample).await, "LockTableError", &missing.action);
    }
}

/// Cleans up while another execution gets the lock during this operation. Returns the operations that
/// were sent.
async fn clean_up_while_the_lock_goes_to_another(template: &Expansion, slow: &'static str) -> Vec<String> {
    let sample = deploy(template).await;
    let locks = locks(&sample);
    let lock = held_by(&locks, "k", ENDED).await;
    let seen = delay(&sample, slow);
    let in_between = async {
        until(&seen, slow).await;
        tokio::time::sleep(MEANTIME / 2).await;
        lock.release().await.unwrap();
        held_by(&locks, "k", OTHER).await.save()
    };
    let (answer, token) = tokio::join!(clean_up(&sample), in_between);
    assert_eq!(answer, Ok(json!({ "released": 0 })));
    let _ = locks.resume(token).await.unwrap().save();
    let seen = seen.lock().unwrap();
    seen.clone()
}

#[tokio::test]
async fn a_lock_that_went_to_another_execution_while_the_index_was_late_is_left_alone() {
    let Some(template) = template() else { return };
    let seen = clean_up_while_the_lock_goes_to_another(&template, "Query").await;
    assert_eq!(seen, ["Query", "GetItem"], "the row was read, and nothing written");
}

#[tokio::test]
async fn a_lock_that_goes_to_another_execution_while_it_is_cleaned_up_is_left_alone() {
    let Some(template) = template() else { return };
    let seen = clean_up_while_the_lock_goes_to_another(&template, "GetItem").await;
    assert_eq!(seen, ["Query", "GetItem", "UpdateItem"], "the write names the version that was read");
}

#[tokio::test]
async fn a_lock_that_is_renewed_during_its_clean_up_is_still_released() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let locks = locks(&sample);
    let mut lock = held_by(&locks, "k", ENDED).await;
    let seen = delay(&sample, "GetItem");
    let in_between = async {
        until(&seen, "GetItem").await;
        tokio::time::sleep(MEANTIME / 2).await;
        lock.checkpoint().await.unwrap();
    };
    let (answer, ()) = tokio::join!(clean_up(&sample), in_between);
    assert_eq!(answer, Ok(json!({ "released": 1 })));
    // The first write names the version that was read. It is refused, and the refusal returns the present
    // row.
    assert_eq!(*seen.lock().unwrap(), ["Query", "GetItem", "UpdateItem", "UpdateItem"]);
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_release_without_a_response_fails_the_invocation_and_the_next_one_frees_the_lock() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let locks = locks(&sample);
    let _ = held_by(&locks, "k", ENDED).await.save();
    let is_write = |call: &Call| call.needs[0].action == "dynamodb:UpdateItem";
    sample.proxy.decide(move |call| if is_write(call) { Fate::Swallowed } else { Fate::Answered });
    assert_error(clean_up(&sample).await, "LockUnknown", "not every lock of the execution was released");
    assert!(!is_free(&locks, "k").await);
    sample.proxy.decide(|_| Fate::Answered);
    assert_eq!(clean_up(&sample).await, Ok(json!({ "released": 1 })));
}

#[tokio::test]
async fn an_index_that_does_not_answer_is_unknown() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    sample.proxy.decide(|_| Fate::Swallowed);
    assert_error(clean_up(&sample).await, "LockUnknown", "byWorkflow");
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let _ = held_by(&locks(&sample), "k", ENDED).await.save();
    let event =
        |status: Value| json!({ "detail": { "executionArn": ENDED, "status": status, "input": MARK } }).to_string();
    let mut logs = String::new();
    for payload in [event(json!("FAILED")), event(json!([MARK])), format!("{MARK} {{")] {
        logs += &sample.lambda.invoke(NAME, &payload).await.unwrap().logs;
    }
    assert!(logs.contains("cleaned up") && logs.contains("InvalidRequest"), "{logs}");
    assert_tells_nothing(&logs);
    assert_counted(&logs);
}
