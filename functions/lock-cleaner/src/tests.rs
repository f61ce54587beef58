//! Which locks are released and which are left alone, tested on an embedded DynamoDB.

use crate::handler::{Deps, handler};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType,
};
use lambda_lock::{LockClient, LockKey};
use lambda_lock_functions::test_support::{DynamoDb, TABLE, assert_failure, event, pause, variables};
use lambda_lock_functions::{ConfigError, Failure};
use lambda_lock_local::TaskTokens;
use lambda_lock_local::authorize::{AuthorizingProxy, Call, Fate, Grant, Role};
use lambda_lock_testkit::{soon_so, takes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ENDED: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:7";
const OTHER: &str = "arn:aws:states:eu-central-1:123456789012:execution:orders:8";
const LEASE: Duration = Duration::from_secs(300);
/// Only tests of the second look wait for it.
const ONE_LOOK: (&str, &str) = ("CLEANUP_SECOND_LOOK_SECONDS", "0");

/// Starts a DynamoDB with a lock table that has the index.
async fn server(sort_key: Option<&str>) -> DynamoDb {
    let server = DynamoDb::empty().await;
    let names = ["key"].into_iter().chain(sort_key);
    let key = |name: &str, type_| KeySchemaElement::builder().attribute_name(name).key_type(type_).build().unwrap();
    let mut create = server.client().create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
    for name in names.clone().chain(["workflow"]) {
        let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
        create = create.attribute_definitions(attribute.build().unwrap());
    }
    for (name, type_) in names.zip([KeyType::Hash, KeyType::Range]) {
        create = create.key_schema(key(name, type_));
    }
    let keys_alone = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let index = GlobalSecondaryIndex::builder().index_name("byWorkflow").projection(keys_alone);
    let index = index.key_schema(key("workflow", KeyType::Hash)).build().unwrap();
    create.global_secondary_indexes(index).send().await.unwrap();
    server
}

fn deps(server: &DynamoDb, environment: &[(&str, &str)]) -> Result<Deps, ConfigError> {
    Deps::new(&server.config(environment)?, &variables(environment))
}

/// Returns the event of a state machine's execution, with these fields in `detail`.
fn status_change(status: &str, detail: Value) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("../tests/events/state-machine.json")).unwrap();
    event["detail"]["status"] = json!(status);
    event["detail"].as_object_mut().unwrap().extend(detail.as_object().unwrap().clone());
    event
}

/// Returns the event of a durable execution, as [AWS documents
/// it](https://docs.aws.amazon.com/lambda/latest/dg/durable-monitoring.html). Of an execution that has ended it says when.
fn durable_status_change(status: &str) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("../tests/events/durable-execution.json")).unwrap();
    event["detail"]["status"] = json!(status);
    if status != "RUNNING" {
        event["detail"]["endTimestamp"] = json!("2025-11-20T13:09:01.017Z");
    }
    event
}

async fn clean_up(deps: &Deps, status: &str) -> Result<Value, Failure> {
    handler(event(&status_change(status, json!({})), 30.0), deps).await
}

/// Acquires a lock and does not release it, as an execution that was stopped.
async fn leave(locks: &LockClient, key: impl Into<LockKey>, owner: &str, workflow: Option<&str>) {
    let mut acquire = locks.acquire(key).lease(LEASE).owner(owner);
    if let Some(workflow) = workflow {
        acquire = acquire.workflow(workflow);
    }
    let _ = acquire.try_once().await.unwrap().granted().unwrap().save();
}

async fn is_free(locks: &LockClient, key: impl Into<LockKey>) -> bool {
    locks.operator().peek(key).await.unwrap().unwrap().released
}

#[tokio::test]
async fn exactly_the_locks_of_the_ended_execution_are_freed() {
    for status in ["FAILED", "TIMED_OUT", "ABORTED"] {
        let server = server(None).await;
        let locks = server.locks(&[]);
        for (key, workflow) in [("a", Some(ENDED)), ("b", Some(ENDED)), ("c", Some(OTHER)), ("d", None)] {
            leave(&locks, key, "me", workflow).await;
        }
        let deps = deps(&server, &[ONE_LOOK]).unwrap();
        assert_eq!(clean_up(&deps, status).await.unwrap(), json!({ "released": 2 }));
        for (key, free) in [("a", true), ("b", true), ("c", false), ("d", false)] {
            assert_eq!(is_free(&locks, key).await, free, "{status} {key}");
        }
        assert_eq!(clean_up(&deps, status).await.unwrap(), json!({ "released": 0 }), "again");
    }
}

/// The keys in the index are those of the rows, with every prefix.
#[tokio::test]
async fn the_locks_of_clients_with_a_prefix_are_freed_too() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    for prefix in ["orders/", "orders/blue/"] {
        leave(&locks.prefixed(prefix).unwrap(), "a", "me", Some(ENDED)).await;
    }
    let deps = deps(&server, &[ONE_LOOK]).unwrap();

    assert_eq!(clean_up(&deps, "FAILED").await.unwrap(), json!({ "released": 2 }));

    assert!(is_free(&locks, "orders/a").await && is_free(&locks, "orders/blue/a").await);
}

/// Whoever uses another prefix of the table cannot make this one fail with an execution that it names.
#[tokio::test]
async fn with_a_prefix_of_its_own_locks_of_others_are_left_alone() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    for key in ["orders/a", "billing/a", "orders", "a"] {
        leave(&locks, key, "me", Some(ENDED)).await;
    }
    let deps = deps(&server, &[ONE_LOOK, ("LOCK_KEY_PREFIX", "orders/")]).unwrap();

    assert_eq!(clean_up(&deps, "FAILED").await.unwrap(), json!({ "released": 1 }));

    for (key, free) in [("orders/a", true), ("billing/a", false), ("orders", false), ("a", false)] {
        assert_eq!(is_free(&locks, key).await, free, "{key}");
    }
}

#[tokio::test]
async fn a_prefix_that_cannot_be_used_stops_the_start_by_its_name() {
    let server = DynamoDb::empty().await;
    for value in ["orders", "once/"] {
        let error = deps(&server, &[("LOCK_KEY_PREFIX", value)]).err().unwrap().to_string();
        assert!(error.starts_with("LOCK_KEY_PREFIX "), "{error}");
    }
}

#[tokio::test]
async fn other_statuses_release_nothing() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    leave(&locks, "a", "me", Some(ENDED)).await;
    for status in ["RUNNING", "SUCCEEDED", "PENDING_REDRIVE", "failed"] {
        // The second look would come after the test's own timeout.
        let deps = deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", "20")]).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(15), clean_up(&deps, status)).await.unwrap();
        assert_eq!(answer.unwrap(), json!({ "released": 0 }), "{status}");
    }
    assert!(!is_free(&locks, "a").await);
}

#[tokio::test]
async fn an_ended_execution_does_not_release_the_lock_of_the_next_holder() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    let lock = locks.acquire("a").lease(LEASE).workflow(ENDED).try_once().await.unwrap().granted().unwrap();
    lock.release().await.unwrap();
    leave(&locks, "a", "the next", Some(OTHER)).await;
    let deps = deps(&server, &[ONE_LOOK]).unwrap();
    assert_eq!(clean_up(&deps, "FAILED").await.unwrap(), json!({ "released": 0 }));
    assert!(!is_free(&locks, "a").await);
}

#[tokio::test]
async fn the_second_look_releases_late_locks_and_both_looks_are_counted() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    leave(&locks, "early", "me", Some(ENDED)).await;
    let deps = deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", "4")]).unwrap();
    let late = async {
        soon_so("the first look, which does not wait", async || is_free(&locks, "early").await).await;
        leave(&locks, "late", "me", Some(ENDED)).await;
    };
    let (answer, ()) = tokio::join!(clean_up(&deps, "ABORTED"), late);
    assert_eq!(answer.unwrap(), json!({ "released": 2 }));
    assert!(is_free(&locks, "late").await);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn the_second_look_leaves_itself_time_before_the_deadline() {
    takes(Duration::from_millis(300)..Duration::from_millis(2000), async || {
        let server = server(None).await;
        let deps = deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", "600")]).unwrap();
        let started = std::time::Instant::now();
        handler(event(&status_change("FAILED", json!({})), 3.5), &deps).await.unwrap();
        started.elapsed()
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_cannot_be_released_does_not_stop_the_others_and_fails_the_invocation() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    for key in ["a", "z"] {
        leave(&locks, key, "me", Some(ENDED)).await;
    }
    let version = format!("ll1-{}-{}", "0".repeat(32), "0".repeat(28));
    let broken = [("key", "m"), ("ownerName", "me"), ("leaseDuration", "a while"), ("workflow", ENDED)];
    server.put(&[&broken[..], &[("recordVersionNumber", &version)]].concat()).await;
    let deps = deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", "0.1")]).unwrap();
    let failed = clean_up(&deps, "FAILED").await;
    assert!(is_free(&locks, "a").await && is_free(&locks, "z").await);
    assert_failure(failed.clone(), "InvalidRecord", "leaseDuration");
    assert_failure(failed, "InvalidRecord", "2 were");
}

#[tokio::test]
async fn the_second_look_retries_locks_that_the_first_could_not_release() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    leave(&locks, "a", "me", Some(ENDED)).await;
    let lease = server.row("a").await.unwrap().remove("leaseDuration").unwrap();
    let set_lease = async |value| {
        let update = server.client().update_item().table_name(TABLE).key("key", text("a"));
        let update =
            update.update_expression("SET leaseDuration = :lease").expression_attribute_values(":lease", value);
        update.send().await.unwrap();
    };
    set_lease(text("a while")).await;
    let deps = deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", "4")]).unwrap();
    let repaired = async {
        pause(Duration::from_millis(300)).await;
        set_lease(lease).await;
    };
    let (answer, ()) = tokio::join!(clean_up(&deps, "FAILED"), repaired);
    assert_eq!(answer.unwrap(), json!({ "released": 1 }));
}

fn text(text: &str) -> aws_sdk_dynamodb::types::AttributeValue {
    aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned())
}

#[tokio::test]
async fn a_late_event_of_an_earlier_attempt_spares_the_locks_of_the_redriven_one() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    for (key, owner) in
        [("first", format!("{ENDED}/0")), ("again", format!("{ENDED}/1")), ("item", format!("{ENDED}/1/3"))]
    {
        leave(&locks, key, &owner, Some(ENDED)).await;
    }
    let deps = deps(&server, &[ONE_LOOK]).unwrap();
    let end_of = async |attempt: u64| {
        let change = status_change("FAILED", json!({ "redriveCount": attempt }));
        handler(event(&change, 30.0), &deps).await.unwrap()
    };
    assert_eq!(end_of(0).await, json!({ "released": 1 }));
    assert!(is_free(&locks, "first").await && !is_free(&locks, "again").await && !is_free(&locks, "item").await);
    assert_eq!(end_of(1).await, json!({ "released": 2 }));
}

#[tokio::test]
async fn exactly_the_locks_of_the_ended_durable_execution_are_freed() {
    let durable = durable_status_change("RUNNING")["detail"]["durableExecutionArn"].as_str().unwrap().to_owned();
    for (status, frees) in
        [("FAILED", true), ("TIMED_OUT", true), ("STOPPED", true), ("RUNNING", false), ("SUCCEEDED", false)]
    {
        let server = server(None).await;
        let locks = server.locks(&[]);
        for (key, workflow) in [("a", durable.as_str()), ("b", durable.as_str()), ("c", ENDED)] {
            leave(&locks, key, "me", Some(workflow)).await;
        }
        let deps = deps(&server, &[ONE_LOOK]).unwrap();

        let answer = handler(event(&durable_status_change(status), 30.0), &deps).await;

        assert_eq!(answer.unwrap(), json!({ "released": if frees { 2 } else { 0 } }), "{status}");
        for (key, free) in [("a", frees), ("b", frees), ("c", false)] {
            assert_eq!(is_free(&locks, key).await, free, "{status} {key}");
        }
    }
}

/// There is no redrive, so no owner outlives the end, whatever its name looks like.
#[tokio::test]
async fn no_owner_is_spared_after_a_durable_execution() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    let mut ended = durable_status_change("STOPPED");
    ended["detail"]["redriveCount"] = json!(0);
    let durable = ended["detail"]["durableExecutionArn"].as_str().unwrap().to_owned();
    leave(&locks, "a", &format!("{durable}/7"), Some(&durable)).await;
    let deps = deps(&server, &[ONE_LOOK]).unwrap();

    assert_eq!(handler(event(&ended, 30.0), &deps).await.unwrap(), json!({ "released": 1 }));
}

#[tokio::test]
async fn a_table_with_a_sort_key_works_too() {
    let environment = [("LOCK_SORT_KEY_ATTRIBUTE", "sk"), ONE_LOOK];
    let server = server(Some("sk")).await;
    let locks = server.locks(&environment);
    let key = |sort_key: &str| LockKey::new("customer-7", Some(sort_key.to_owned()));
    leave(&locks, key("invoice-1"), "me", Some(ENDED)).await;
    leave(&locks, key("invoice-2"), "me", Some(OTHER)).await;
    assert_eq!(clean_up(&deps(&server, &environment).unwrap(), "FAILED").await.unwrap(), json!({ "released": 1 }));
    assert!(is_free(&locks, key("invoice-1")).await && !is_free(&locks, key("invoice-2")).await);
}

#[tokio::test]
async fn more_locks_than_fit_on_one_page_are_all_freed() {
    let server = server(None).await;
    let locks = server.locks(&[]);
    // DynamoDB ends a page after 1 MB.
    let keys: Vec<_> = (0..600).map(|n| format!("{n}-{}", "k".repeat(2000))).collect();
    for key in &keys {
        leave(&locks, key.as_str(), "me", Some(ENDED)).await;
    }
    assert_eq!(clean_up(&deps(&server, &[ONE_LOOK]).unwrap(), "FAILED").await.unwrap(), json!({ "released": 600 }));
}

#[tokio::test]
async fn a_malformed_event_is_refused_by_the_name_of_the_field() {
    let server = server(None).await;
    let deps = deps(&server, &[]).unwrap();
    for (change, field) in [
        (json!({}), "detail is missing"),
        (json!({ "detail": "FAILED" }), "detail is malformed"),
        (json!({ "detail": { "status": "FAILED" } }), "detail.executionArn is missing"),
        (json!({ "detail": { "executionArn": "", "status": "FAILED" } }), "detail.executionArn is malformed"),
        (json!({ "detail": { "executionArn": ENDED } }), "detail.status is missing"),
        (json!({ "detail": { "durableExecutionArn": 7 } }), "detail.durableExecutionArn is malformed"),
        (json!({ "detail": { "durableExecutionArn": ENDED } }), "detail.status is missing"),
        (json!({ "detail": { "executionArn": ENDED, "status": 1 } }), "detail.status is malformed"),
        (status_change("FAILED", json!({ "redriveCount": -1 })), "detail.redriveCount is malformed"),
        (json!([]), "the event is no JSON object"),
    ] {
        assert_failure(handler(event(&change, 30.0), &deps).await, "InvalidRequest", field);
    }
}

#[tokio::test]
async fn a_table_without_the_index_and_a_missing_table_are_reported_by_name() {
    for server in [DynamoDb::start().await, DynamoDb::empty().await] {
        let deps = deps(&server, &[ONE_LOOK]).unwrap();
        let failed = clean_up(&deps, "FAILED").await;
        assert_failure(failed.clone(), "LockTableError", "byWorkflow");
        assert_failure(failed, "LockTableError", "\"locks\"");
    }
}

#[tokio::test]
async fn an_invalid_time_of_the_second_look_stops_the_start() {
    let server = DynamoDb::empty().await;
    for value in ["soon", "-1", "NaN", "1e300"] {
        let error = deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", value)]).err().unwrap().to_string();
        assert!(error.starts_with("CLEANUP_SECOND_LOOK_SECONDS is "), "{error}");
    }
    assert!(deps(&server, &[("CLEANUP_SECOND_LOOK_SECONDS", "")]).is_ok());
}

/// An execution was stopped while it held one lock and waited in line for another one. A third one waits for the first lock.
#[tokio::test]
async fn whoever_waits_for_a_lock_of_the_ended_execution_is_woken_and_its_own_wake_item_is_deleted() {
    let (server, tokens) = (server(None).await, TaskTokens::start().await.unwrap());
    let locks = server.locks(&[]);
    leave(&locks, "a", "me", Some(ENDED)).await;
    let refused = locks.acquire("a").lease(LEASE).between_calls().try_once().await.unwrap();
    assert_eq!(refused.refused().unwrap().observation.ticket(), Some(1));
    let item = |key: &'static str, token: &'static str, workflow: &'static str| {
        [("key", key), ("taskToken", token), ("workflow", workflow)]
    };
    server.put(&item("wake/a/1", "of the other", OTHER)).await;
    server.put(&item("wake/b/4", "of the ended", ENDED)).await;
    server.put(&item("wake/c/4", "of another", OTHER)).await;
    tokens.close("of the ended");
    let deps = deps(&server, &[ONE_LOOK, ("AWS_ENDPOINT_URL_SFN", tokens.endpoint())]).unwrap();

    assert_eq!(clean_up(&deps, "ABORTED").await.unwrap(), json!({ "released": 1 }));

    assert_eq!(tokens.take_woken(), ["of the other"]);
    for (key, is_left) in [("wake/a/1", false), ("wake/b/4", false), ("wake/c/4", true)] {
        assert_eq!(server.row(key).await.is_some(), is_left, "{key}");
    }
}

/// The release was applied, and its response was lost. Nobody else would wake those in line: to a look at the index the lock is
/// one of nobody.
#[tokio::test]
async fn whoever_waits_is_woken_although_the_response_to_the_release_is_lost_each_time() {
    let (server, tokens) = (server(None).await, TaskTokens::start().await.unwrap());
    let locks = server.locks(&[]);
    leave(&locks, "a", "me", Some(ENDED)).await;
    let refused = locks.acquire("a").lease(LEASE).between_calls().try_once().await.unwrap();
    assert_eq!(refused.refused().unwrap().observation.ticket(), Some(1));
    server.put(&[("key", "wake/a/1"), ("taskToken", "of the other"), ("workflow", OTHER)]).await;
    let table = "arn:aws:dynamodb:eu-central-1:123456789012:table/locks";
    let grant = |action: &str| Grant::new(format!("dynamodb:{action}"), table);
    let mut role: Role = ["GetItem", "UpdateItem", "DeleteItem"].map(grant).into();
    role.insert(Grant::new("dynamodb:Query", format!("{table}/index/byWorkflow")));
    let roles = BTreeMap::from([("test".to_owned(), role)]);
    let proxy = AuthorizingProxy::start(server.endpoint(), roles).await.unwrap();
    proxy.decide(|Call { needs, .. }| {
        let is_write = needs.iter().any(|need| need.action.ends_with(":UpdateItem"));
        if is_write { Fate::AppliedButFails } else { Fate::Answered }
    });
    let environment =
        [ONE_LOOK, ("AWS_ENDPOINT_URL_DYNAMODB", proxy.endpoint()), ("AWS_ENDPOINT_URL_SFN", tokens.endpoint())];

    let cleaned_up = clean_up(&deps(&server, &environment).unwrap(), "ABORTED").await;

    assert_failure(cleaned_up, "LockUnknown", "not every lock of the execution was released");
    assert!(is_free(&locks, "a").await);
    assert_eq!(tokens.take_woken(), ["of the other"]);
}

/// An execution that ends does not leave the line: its ticket stays in the row, and its wake item in the table.
#[tokio::test]
async fn whoever_waits_behind_the_ended_execution_is_woken_in_its_place() {
    let (server, tokens) = (server(None).await, TaskTokens::start().await.unwrap());
    let locks = server.locks(&[]);
    leave(&locks, "a", "me", Some(ENDED)).await;
    for (ticket, execution) in [(1, ENDED), (2, OTHER)] {
        let refused = locks.acquire("a").lease(LEASE).between_calls().try_once().await.unwrap();
        assert_eq!(refused.refused().unwrap().observation.ticket(), Some(ticket));
        server.put(&[("key", &format!("wake/a/{ticket}")), ("taskToken", execution), ("workflow", execution)]).await;
    }
    tokens.close(ENDED);
    let deps = deps(&server, &[ONE_LOOK, ("AWS_ENDPOINT_URL_SFN", tokens.endpoint())]).unwrap();

    assert_eq!(clean_up(&deps, "ABORTED").await.unwrap(), json!({ "released": 1 }));

    assert_eq!(tokens.take_woken(), [OTHER]);
    for ticket in [1, 2] {
        assert!(server.row(&format!("wake/a/{ticket}")).await.is_none(), "{ticket}");
    }
}

/// It has its ARN still, and waits again.
#[tokio::test]
async fn an_execution_that_was_redriven_since_is_woken() {
    let (server, tokens) = (server(None).await, TaskTokens::start().await.unwrap());
    server.put(&[("key", "wake/orders/b/4"), ("taskToken", "redriven"), ("workflow", ENDED)]).await;
    server.put(&[("key", "wake/billing/b/4"), ("taskToken", "of others"), ("workflow", ENDED)]).await;
    let environment = [ONE_LOOK, ("LOCK_KEY_PREFIX", "orders/"), ("AWS_ENDPOINT_URL_SFN", tokens.endpoint())];
    let deps = deps(&server, &environment).unwrap();

    assert_eq!(clean_up(&deps, "ABORTED").await.unwrap(), json!({ "released": 0 }));

    assert_eq!(tokens.take_woken(), ["redriven"]);
}

/// The items of a Map may have waited for many locks.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn many_wake_items_do_not_delay_the_second_look_although_step_functions_does_not_answer() {
    takes(Duration::ZERO..Duration::from_millis(8000), async || {
        let (server, tokens) = (server(None).await, TaskTokens::start().await.unwrap());
        for n in 0..12 {
            server.put(&[("key", format!("wake/{n}/1").as_str()), ("taskToken", "mine"), ("workflow", ENDED)]).await;
        }
        tokens.fall_silent();
        let environment = [("CLEANUP_SECOND_LOOK_SECONDS", "3"), ("AWS_ENDPOINT_URL_SFN", tokens.endpoint())];
        let (deps, locks) = (deps(&server, &environment).unwrap(), server.locks(&[]));
        let started = Instant::now();
        let status_change = status_change("ABORTED", json!({}));
        let (cleaned_up, ()) = tokio::join!(handler(event(&status_change, 8.0), &deps), async {
            pause(Duration::from_millis(500)).await;
            leave(&locks, "late", "me", Some(ENDED)).await;
        });
        let took = started.elapsed();
        assert!(is_free(&locks, "late").await);
        assert_failure(cleaned_up, "LockUnknown", "1 were");
        took
    })
    .await;
}

/// Otherwise Lambda ends the invocation, and repeats it.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is the promise")]
async fn a_late_lock_is_released_in_time_although_step_functions_does_not_answer() {
    takes(Duration::ZERO..Duration::from_millis(8000), async || {
        let (server, tokens) = (server(None).await, TaskTokens::start().await.unwrap());
        tokens.fall_silent();
        let environment = [("CLEANUP_SECOND_LOOK_SECONDS", "3"), ("AWS_ENDPOINT_URL_SFN", tokens.endpoint())];
        let (deps, locks) = (deps(&server, &environment).unwrap(), server.locks(&[]));
        let started = Instant::now();
        let status_change = status_change("ABORTED", json!({}));
        let (cleaned_up, ()) = tokio::join!(handler(event(&status_change, 8.0), &deps), async {
            pause(Duration::from_millis(500)).await;
            leave(&locks, "late", "me", Some(ENDED)).await;
            let next = locks.acquire("late").lease(Duration::from_secs(60)).between_calls().try_once().await.unwrap();
            assert!(next.refused().is_some());
            server.put(&[("key", "wake/late/1"), ("taskToken", "next")]).await;
        });
        assert_eq!(cleaned_up.unwrap(), json!({ "released": 1 }));
        let took = started.elapsed();
        assert!(server.row("wake/late/1").await.is_none(), "it tried to wake somebody");
        took
    })
    .await;
}
