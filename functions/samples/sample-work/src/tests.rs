//! The promises of a step, tested on an embedded DynamoDB.

use crate::counter::MAX_WRITERS;
use crate::handler::{Deps, handler};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use lambda_lock_functions::Failure;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, variables};
use serde_json::{Value, json};

async fn deps() -> Deps {
    without_table(&server().await)
}

async fn server() -> DynamoDb {
    let server = DynamoDb::empty().await;
    let key = KeySchemaElement::builder().attribute_name("counter").key_type(KeyType::Hash).build().unwrap();
    let text = AttributeDefinition::builder().attribute_name("counter").attribute_type(ScalarAttributeType::S);
    let create = server.client().create_table().table_name("work").billing_mode(BillingMode::PayPerRequest);
    create.key_schema(key).attribute_definitions(text.build().unwrap()).send().await.unwrap();
    server
}

fn without_table(server: &DynamoDb) -> Deps {
    with(server, &[("ALLOW_SIMULATE", "true")])
}

fn with(server: &DynamoDb, environment: &[(&str, &str)]) -> Deps {
    let all = [environment, &[("WORK_TABLE", "work")]].concat();
    Deps::new(&server.config(&[]).unwrap(), &variables(&all)).unwrap()
}

async fn step(deps: &Deps, step: &str, token: u64, more: Value) -> Result<Value, Failure> {
    let mut request = json!({ "step": step, "counter": "customer-7", "fencingToken": token, "writer": "me" });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    handler(event(&request, 30.0), deps).await
}

#[tokio::test]
async fn a_counter_begins_at_zero_and_counts_in_two_steps_or_in_one() {
    let deps = deps().await;
    assert_eq!(step(&deps, "read", 1, json!({})).await.unwrap(), json!({ "value": 0 }));
    for _ in 0..2 {
        assert_eq!(step(&deps, "write", 1, json!({ "value": 1 })).await.unwrap(), json!({ "value": 1 }), "repeated");
    }
    assert_eq!(step(&deps, "add", 2, json!({})).await.unwrap(), json!({ "value": 2 }));
    assert_eq!(step(&deps, "read", 2, json!({})).await.unwrap(), json!({ "value": 2 }));
}

#[tokio::test]
async fn an_older_grant_can_neither_read_nor_write_once_a_newer_one_has_read() {
    let deps = deps().await;
    step(&deps, "read", 1, json!({})).await.unwrap();
    step(&deps, "read", 2, json!({})).await.unwrap();
    for (name, more) in [("read", json!({})), ("write", json!({ "value": 1 })), ("add", json!({}))] {
        assert_failure(step(&deps, name, 1, more).await, "LockLost", "larger fencing token");
    }
    assert_eq!(step(&deps, "read", 2, json!({})).await.unwrap(), json!({ "value": 0 }));
}

#[tokio::test]
async fn a_counter_remembers_its_last_writers_up_to_a_bound() {
    let server = server().await;
    let deps = without_table(&server);
    let writers = async || {
        let row = server.client().get_item().table_name("work").key("counter", AttributeValue::S("customer-7".into()));
        let row = row.consistent_read(true).send().await.unwrap().item.unwrap();
        row["writers"].as_ss().unwrap().clone()
    };
    for value in 1..=MAX_WRITERS + 1 {
        let added = step(&deps, "add", 1, json!({ "writer": format!("{value}") })).await.unwrap();
        assert_eq!(added, json!({ "value": value }));
        let writers = writers().await;
        assert!(writers.contains(&value.to_string()));
        assert_eq!(writers.len(), if value > MAX_WRITERS { 1 } else { value }, "after {value}");
        if value == MAX_WRITERS {
            assert_failure(step(&deps, "write", 0, json!({ "value": 7 })).await, "LockLost", "larger fencing token");
        }
    }
    let again = json!({ "value": MAX_WRITERS + 1, "writer": "again" });
    step(&deps, "write", 1, again).await.unwrap();
    assert_eq!(writers().await.len(), 2);
}

#[tokio::test]
async fn a_step_with_a_failure_fails_before_its_effect() {
    let deps = deps().await;
    let failing = json!({ "input": { "key": "customer-7", "simulate": { "failAt": "add" } } });
    assert_failure(step(&deps, "add", 1, failing.clone()).await, "WorkFailed", "as the input asked for");
    assert_eq!(step(&deps, "read", 1, failing).await.unwrap(), json!({ "value": 0 }));
}

#[tokio::test]
async fn nothing_is_simulated_unless_the_environment_says_so() {
    let server = DynamoDb::empty().await;
    for environment in [&[][..], &[("ALLOW_SIMULATE", "false")]] {
        let deps = with(&server, environment);
        for simulate in [json!({}), json!({ "crashAt": "add" }), json!(null)] {
            let input = json!({ "input": { "key": "customer-7", "simulate": simulate } });
            assert_failure(
                step(&deps, "add", 1, input).await,
                "InvalidRequest",
                "input.simulate is for demonstrations",
            );
        }
    }
}

#[tokio::test]
async fn a_missing_table_is_reported_by_name() {
    let deps = without_table(&DynamoDb::empty().await);
    assert_failure(step(&deps, "add", 1, json!({})).await, "WorkFailed", "\"work\"");
}

#[tokio::test]
async fn a_malformed_field_is_named() {
    let deps = deps().await;
    for (name, more, field) in [
        ("subtract", json!({}), "step"),
        ("read", json!({ "fencingToken": "1" }), "fencingToken"),
        ("read", json!({ "counter": "" }), "counter"),
        ("read", json!({ "writer": 7 }), "writer"),
        ("read", json!({ "colour": "blue" }), "colour"),
        ("write", json!({}), "value"),
    ] {
        assert_failure(step(&deps, name, 1, more).await, "InvalidRequest", field);
    }
}
