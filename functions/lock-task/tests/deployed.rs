//! The binary as the template deploys it: its environment, permissions, logs and errors.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod snapstart;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::authorize::{Call, Fate, task_token};
use lambda_lock_local::deployed::{
    Answer, MARK, answered, assert_does_not_start, assert_error, assert_tells_nothing, first_answer_lost, metrics,
    template, template_for_existing_table,
};
use lambda_lock_local::{Expansion, Sample, TaskTokens, client, python_with_boto3};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::process::Command;

const NAME: &str = "lock-task";
/// The name of the lock table in the embedded DynamoDB.
const TABLE: &str = "LockTable";

async fn deploy(template: &Expansion) -> Sample {
    Sample::deploy(template, &[Path::new(env!("CARGO_BIN_EXE_lock-task"))]).await.unwrap()
}

async fn ask(sample: &Sample, request: Value) -> Answer {
    sample.ask(NAME, &request).await
}

fn acquire(key: &str, owner: &str) -> Value {
    json!({ "action": "acquire", "key": key, "owner": owner, "leaseSeconds": 60 })
}

fn acquire_and(key: &str, owner: &str, more: Value) -> Value {
    let mut request = acquire(key, owner);
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn release(lock: &Value) -> Value {
    json!({ "action": "release", "lock": lock })
}

/// Uses everything that the function can do: acquires a lock, waits for it in vain, renews it, releases it, looks for its
/// own place of a semaphore, and recovers from an acquire whose response was lost.
async fn everything(sample: &Sample) -> Result<(), (String, String)> {
    let attributes = json!({ "job": "nightly", "shard": 5 });
    let granted = ask(sample, acquire_and("k", "a", json!({ "attributes": attributes }))).await?;
    let held = ask(sample, acquire_and("k", "b", json!({ "waitSeconds": 0.3, "whenHeld": "report" }))).await?;
    assert_eq!((&held["acquired"], &held["holder"]["attributes"]), (&json!(false), &attributes));
    let renewed = ask(sample, json!({ "action": "renew", "lock": granted["lock"], "leaseSeconds": 90 })).await?;
    assert_eq!(renewed["lock"]["leaseSeconds"], 90);
    assert_eq!(ask(sample, release(&renewed["lock"])).await?, json!({ "released": true }));
    let place = ask(sample, acquire_and("p", "a", json!({ "permits": 1, "reclaim": true }))).await?;
    assert_eq!((&place["place"], &place["lock"]["key"]), (&json!(0), &json!("p/0")));
    an_execution_is_woken(sample).await?;
    sample.proxy.decide(first_answer_lost());
    let again = ask(sample, acquire_and("k", "c", json!({ "attributes": attributes }))).await?;
    assert_eq!(again["acquired"], true);
    Ok(())
}

/// An execution waits in line, and the release of the holder ends its wait.
async fn an_execution_is_woken(sample: &Sample) -> Result<(), (String, String)> {
    let tokens = TaskTokens::start().await.unwrap();
    sample.proxy.forward_states_to(tokens.endpoint()).unwrap();
    let granted = ask(sample, acquire("l", "a")).await?;
    let held = ask(sample, acquire_and("l", "b", json!({ "inLine": true, "whenHeld": "report" }))).await?;
    let wait = json!({
        "action": "wait", "key": "l", "observation": held["observation"], "waitedSeconds": 0,
        "taskToken": task_token("exclusive-work"),
    });
    let sent = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&sent);
    sample.proxy.decide(move |call: &Call| {
        noted.lock().unwrap().push(call.needs[0].action.clone());
        Fate::Answered
    });
    assert_eq!(ask(sample, wait).await?, json!({ "waits": true }));
    // A release before the look is seen by it, and one after it finds the item.
    assert_eq!(*sent.lock().unwrap(), ["dynamodb:PutItem", "dynamodb:GetItem"]);
    assert_eq!(ask(sample, release(&granted["lock"])).await?, json!({ "released": true }));
    let woken = tokens.take_woken().len();
    if woken == 1 { Ok(()) } else { Err(("NobodyWoken".to_owned(), format!("{woken} were woken"))) }
}

#[tokio::test]
async fn every_action_works_with_exactly_what_the_template_allows() {
    let Some(template) = template() else { return };
    let allows = template.allows(NAME);

    let sample = deploy(&template).await;
    everything(&sample).await.unwrap();
    assert_eq!(&sample.proxy.used(NAME), allows, "used and allowed actions differ");
}

#[tokio::test]
async fn without_any_one_of_its_permissions_it_fails() {
    let Some(template) = template() else { return };
    for missing in template.allows(NAME) {
        let less = template.without(NAME, missing);
        let done = everything(&deploy(&less).await).await.map(Value::from);
        match &*missing.action {
            // A release does not fail because of them.
            "states:SendTaskSuccess" | "dynamodb:DeleteItem" => assert_error(done, "NobodyWoken", ""),
            action => assert_error(done, "LockTableError", action),
        }
    }
}

#[tokio::test]
async fn every_action_works_on_a_table_that_exists_already() {
    let Some(template) = template_for_existing_table("locks") else { return };

    let sample = deploy(&template).await;
    everything(&sample).await.unwrap();
    assert_eq!(&sample.proxy.used(NAME), template.allows(NAME), "what is used, and what is allowed");
}

#[tokio::test]
async fn with_a_key_prefix_every_action_works_and_the_role_allows_no_other_key() {
    let Some(template) = Expansion::expand_with(&["LockKeyPrefix=orders/"]).unwrap() else { return };

    let sample = deploy(&template).await;
    everything(&sample).await.unwrap();
    assert_eq!(&sample.proxy.used(NAME), template.allows(NAME), "what is used, and what is allowed");
    let rows = client(sample.dynamodb.endpoint()).scan().table_name(TABLE).send().await.unwrap();
    let mut keys: Vec<_> = rows.items().iter().map(|row| row["key"].as_s().unwrap().as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["orders/k", "orders/l", "orders/p/0"]);

    // The role confines the function, whatever prefix it puts before its keys.
    let without = deploy(&template.with(NAME, &[("LOCK_KEY_PREFIX", "")])).await;
    assert_error(ask(&without, acquire("k", "a")).await, "LockTableError", "access is denied");
    assert_eq!(ask(&without, acquire("orders/k", "a")).await.unwrap()["acquired"], true);
}

/// With such a prefix the function would be deployed and not start.
#[test]
fn the_template_refuses_a_prefix_that_the_function_refuses() {
    if template().is_none() {
        return;
    }
    for prefix in ["orders", "once/", "orders/once/", "wake/", "wake/orders/", "/", "orders//", "*/"] {
        let error = Expansion::expand_with(&[&format!("LockKeyPrefix={prefix}")]).unwrap_err();
        assert!(error.to_string().contains("would refuse LockKeyPrefix"), "{prefix}: {error:#}");
    }
    for prefix in ["", "orders/", "orders/once-more/", "orders/wake/", "awake/", "a/b@c/"] {
        Expansion::expand_with(&[&format!("LockKeyPrefix={prefix}")]).unwrap();
    }
}

#[tokio::test]
async fn tenants_have_environments_and_locks_of_their_own() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.with(NAME, &[("LOCK_PER_TENANT", "true")])).await;
    let for_tenant = async |tenant: &str, owner: &str| {
        let request = acquire("k", owner).to_string();
        sample.lambda.invoke_for(NAME, tenant, &request).await.unwrap()
    };

    let (blue, red, again) = (for_tenant("a/b", "a").await, for_tenant("a", "a").await, for_tenant("a/b", "b").await);

    assert_eq!((blue.environment, red.environment == blue.environment), (again.environment, false));
    assert_eq!(answered(blue).unwrap()["lock"]["key"], "k");
    assert_eq!(answered(red).unwrap()["lock"]["key"], "k");
    assert_error(answered(again), "LockHeld", "the lock k is held");
    let rows = client(sample.dynamodb.endpoint()).scan().table_name(TABLE).send().await.unwrap();
    let mut keys: Vec<_> = rows.items().iter().map(|row| row["key"].as_s().unwrap().as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a/k", "a=2Fb/k"]);

    assert_error(ask(&sample, acquire("k", "a")).await, "InvalidRequest", "no tenant id");
}

#[tokio::test]
async fn held_lost_and_malformed_are_reported_by_name() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let first = ask(&sample, acquire("k", "a")).await.unwrap();
    assert_error(ask(&sample, acquire("k", "b")).await, "LockHeld", "\"a\"");
    // The lock is held for the same owner too. With `reclaim` the owner gets it again, and the first grant is
    // lost.
    assert_error(ask(&sample, acquire("k", "a")).await, "LockHeld", r#""reclaim": true"#);
    ask(&sample, acquire_and("k", "a", json!({ "reclaim": true }))).await.unwrap();
    let renew = json!({ "action": "renew", "lock": first["lock"], "leaseSeconds": 60 });
    assert_error(ask(&sample, renew).await, "LockLost", "no longer ours");
    assert_error(ask(&sample, json!({ "action": "acquire" })).await, "InvalidRequest", "key is missing");
    assert_error(ask(&sample, json!(["acquire"])).await, "InvalidRequest", "no JSON object");
}

#[tokio::test]
async fn a_dynamodb_that_does_not_answer_is_unknown_and_the_next_request_works() {
    let Some(mut template) = template() else { return };
    template.functions.get_mut(NAME).unwrap().timeout_seconds = 4;
    let sample = deploy(&template).await;
    sample.proxy.decide(|_| Fate::Swallowed);
    assert_error(ask(&sample, acquire("k", "a")).await, "LockUnknown", "k");
    sample.proxy.decide(|_| Fate::Answered);
    assert_eq!(ask(&sample, acquire("k", "a")).await.unwrap()["acquired"], true);
}

#[tokio::test]
async fn a_row_that_is_no_lock_is_reported_by_name() {
    let Some(template) = template() else { return };
    let sample = deploy(&template).await;
    let put = client(sample.dynamodb.endpoint()).put_item().table_name(TABLE);
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let put = put.item("key", text("k")).item("recordVersionNumber", text("x")).item("ownerName", text("y"));
    put.send().await.unwrap();
    assert_error(ask(&sample, acquire("k", "a")).await, "InvalidRecord", "leaseDuration");
}

#[tokio::test]
async fn the_python_file_acquires_waits_renews_and_releases_and_tells_when_a_lock_was_lost() {
    let Some(template) = template() else { return };
    let Some(python) = python_with_boto3().unwrap() else { return };
    let sample = deploy(&template).await;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));

    let program = Command::new(python)
        .arg("-B")
        .arg(here.join("tests/uses_lock_task.py"))
        .env("PYTHONPATH", here)
        .env("AWS_ENDPOINT_URL_LAMBDA", sample.lambda.endpoint())
        .envs([("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "eu-central-1")])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();

    assert!(program.status.success(), "{}", String::from_utf8_lossy(&program.stderr));
}

#[tokio::test]
async fn a_table_that_is_missing_or_has_another_key_is_reported_by_name() {
    let Some(template) = template() else { return };
    let mut without_table = template.clone();
    without_table.tables.clear();
    assert_error(ask(&deploy(&without_table).await, acquire("k", "a")).await, "LockTableError", r#"table "LockTable""#);

    let mut other_key = template.clone();
    let table = other_key.tables.iter_mut().find(|table| table["TableName"] == TABLE).unwrap();
    table["AttributeDefinitions"] = json!([{ "AttributeName": "id", "AttributeType": "S" }]);
    table["KeySchema"] = json!([{ "AttributeName": "id", "KeyType": "HASH" }]);
    table.as_object_mut().unwrap().remove("GlobalSecondaryIndexes");
    assert_error(ask(&deploy(&other_key).await, acquire("k", "a")).await, "LockTableError", "cannot be used");
}

#[tokio::test]
async fn a_missing_or_malformed_variable_stops_the_start_with_a_sentence_that_names_it() {
    let Some(template) = template() else { return };
    for (name, value, says) in [
        ("LOCK_TABLE", "", "LOCK_TABLE is not set"),
        ("LOCK_TABLE", "no table!", "LOCK_TABLE cannot be used"),
        ("LOCK_MAX_CLOCK_SKEW_MS", "2 s", "LOCK_MAX_CLOCK_SKEW_MS is "),
        ("LOCK_TTL_ATTRIBUTE", "ownerName", "LOCK_TTL_ATTRIBUTE cannot be used"),
        ("LOCK_KEY_ATTRIBUTE", "data", "LOCK_KEY_ATTRIBUTE cannot be used"),
        ("LOCK_SORT_KEY_ATTRIBUTE", "key", "LOCK_SORT_KEY_ATTRIBUTE cannot be used"),
        ("LOCK_LEASE_DIALECT", "Java", "LOCK_LEASE_DIALECT is "),
        ("AWS_REGION", "Frankfurt am Main", "AWS_REGION is "),
        ("AWS_REGION", "", "AWS_REGION is not set"),
        ("AWS_ACCESS_KEY_ID", "", "AWS_ACCESS_KEY_ID is not set"),
        ("AWS_SECRET_ACCESS_KEY", "", "AWS_SECRET_ACCESS_KEY is not set"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "no url", "AWS_CONTAINER_CREDENTIALS_FULL_URI is "),
        ("AWS_ACCOUNT_ID_ENDPOINT_MODE", "sometimes", "AWS_ACCOUNT_ID_ENDPOINT_MODE is "),
        ("AWS_ENDPOINT_URL_DYNAMODB", "localhost:8000", "AWS_ENDPOINT_URL_DYNAMODB is "),
    ] {
        let sample = deploy(&template.with(NAME, &[(name, value)])).await;
        let stopped = sample.lambda.invoke(NAME, &acquire("k", "a").to_string()).await.unwrap();
        assert_does_not_start(&stopped, says);
    }
}

#[tokio::test]
async fn neither_payloads_nor_credentials_are_logged_whatever_the_log_level() {
    let Some(template) = template() else { return };
    let sample = deploy(&template.loud(NAME)).await;
    let mut logs = String::new();
    let secret = |what: &str| format!("{what}-{MARK}");
    let granted = json!({ "data": secret("data"), "execution": secret("execution"), "reclaim": true });
    let granted = acquire_and("k", "a", granted);
    let lock = ask(&sample, granted.clone()).await.unwrap()["lock"].clone();
    assert_eq!(lock["data"], secret("data"));
    let other_lock = json!({ "key": "k", "owner": "a", "version": secret("version") });
    for request in [
        // Requests that succeed.
        granted,
        acquire_and("k", "b", json!({ "data": secret("data"), "whenHeld": "report" })),
        json!({ "action": "renew", "lock": lock, "leaseSeconds": 60 }),
        // Requests that fail, each with a secret that must not be logged.
        acquire_and("k", "b", json!({ "data": secret("data") })),
        acquire_and("k", "b", json!({ "unknown": secret("unknown") })),
        acquire_and("k", "b", json!({ "whenHeld": secret("whenHeld") })),
        acquire_and("k", "b", json!({ "leaseSeconds": secret("leaseSeconds") })),
        acquire_and("k", "b", json!({ "observation": secret("observation"), "waitedSeconds": 1 })),
        json!({ "action": secret("action") }),
        json!({ "action": "release", "lock": other_lock }),
        json!([secret("event")]),
        json!(secret("event")),
    ] {
        logs += &sample.lambda.invoke(NAME, &request.to_string()).await.unwrap().logs;
    }
    logs += &sample.lambda.invoke(NAME, &format!("{{\"{}", secret("broken"))).await.unwrap().logs;
    assert!(logs.contains("LockHeld") && logs.contains("InvalidRequest"), "a failure is missing in the log: {logs}");
    assert_tells_nothing(&logs);
}

#[tokio::test]
async fn an_invocation_that_uses_a_lock_writes_one_line_of_metrics_and_another_one_none() {
    let Some(template) = Expansion::expand_with(&["Metrics=prefix"]).unwrap() else { return };
    let sample = deploy(&template).await;
    let logs = async |request: Value| sample.lambda.invoke(NAME, &request.to_string()).await.unwrap().logs;
    let line_of = async |request: Value| {
        let lines = metrics(&logs(request).await);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let mut line = line.clone();
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Namespace"], "LambdaLock/stack");
        // What the clocks show.
        for name in ["_aws", "ClockOffset", "LeaseAge", "Waited"] {
            line.as_object_mut().unwrap().remove(name);
        }
        line
    };
    let line = |more: Value| {
        let mut line = json!({ "FunctionName": NAME, "KeyPrefix": "orders", "Requests": 1 });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };

    assert_eq!(line_of(acquire("orders/7", "a")).await, line(json!({ "Acquisitions": 1 })));
    assert_eq!(line_of(acquire("orders/7", "b")).await, line(json!({ "Refusals": 1 })));
    let waiting = acquire_and("orders/7", "b", json!({ "waitSeconds": 0.3 }));
    let waited = line_of(waiting).await;
    assert_eq!((&waited["Waits"], &waited["Refusals"]), (&json!(1), &json!(1)));
    let lock = ask(&sample, acquire("orders/8", "a")).await.unwrap()["lock"].clone();
    assert_eq!(line_of(release(&lock)).await, line(json!({})));
    let renew = json!({ "action": "renew", "lock": lock, "leaseSeconds": 60 });
    assert_eq!(line_of(renew).await, line(json!({ "Lost": 1 })));
    assert_eq!(line_of(acquire("k", "a")).await["KeyPrefix"], "none");

    for request in [json!({ "action": "acquire" }), json!([])] {
        assert!(!logs(request).await.contains("_aws"));
    }
    let without = deploy(&template.with(NAME, &[("METRICS_NAMESPACE", "")])).await;
    assert!(!without.lambda.invoke(NAME, &acquire("k", "a").to_string()).await.unwrap().logs.contains("_aws"));
}
