//! A key prefix, and one for each tenant: on the row, and in no request, answer or error.

use super::{Function, acquire, deps, with};
use crate::handler::handler;
use lambda_lock_functions::Failure;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event};
use serde_json::{Value, json};

const PREFIX: (&str, &str) = ("LOCK_KEY_PREFIX", "orders/");
const PER_TENANT: (&str, &str) = ("LOCK_PER_TENANT", "true");

impl Function {
    async fn call_for(&self, tenant: &str, request: Value) -> Result<Value, Failure> {
        let mut event = event(&request, 30.0);
        event.context.tenant_id = Some(tenant.to_owned());
        handler(event, &self.deps).await
    }

    async fn is_held(&self, row: &str) -> bool {
        self.server.row(row).await.is_some_and(|row| !row.contains_key("isReleased"))
    }
}

fn release(lock: &Value) -> Value {
    json!({ "action": "release", "lock": lock })
}

fn renew(lock: &Value) -> Value {
    json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 })
}

#[tokio::test]
async fn a_key_prefix_is_on_the_row_and_in_no_request_or_answer() {
    let function = Function::with(&[PREFIX]).await;

    let lock = function.lock("me").await;
    let renewed = function.answer(renew(&lock)).await["lock"].clone();

    assert_eq!((&lock["key"], &renewed["key"]), (&json!("customer-7"), &json!("customer-7")));
    assert!(function.is_held("orders/customer-7").await);
    assert_eq!(function.server.row("customer-7").await, None);

    assert_eq!(function.answer(release(&renewed)).await, json!({ "released": true }));
    assert!(!function.is_held("orders/customer-7").await);
}

#[tokio::test]
async fn an_error_names_the_key_as_the_request_does() {
    let function = Function::with(&[PREFIX]).await;
    let lock = function.lock("me").await;

    assert_failure(function.call(acquire("another")).await, "LockHeld", "the lock customer-7 is held");
    function.answer(release(&lock)).await;
    assert_failure(function.call(renew(&lock)).await, "LockLost", "the lock customer-7 is no longer ours");
    function.server.put(&[("key", "orders/customer-7"), ("colour", "blue")]).await;
    assert_failure(function.call(acquire("me")).await, "InvalidRecord", r#"the row key="orders/customer-7""#);

    let once = with(acquire("me"), json!({ "key": "once/order-42" }));
    assert_failure(function.call(once).await, "InvalidRequest", "key is malformed");
}

#[tokio::test]
async fn the_prefix_counts_towards_the_length_of_the_key() {
    let function = Function::with(&[PREFIX]).await;
    let with_key = |bytes| with(acquire("me"), json!({ "key": "k".repeat(bytes) }));

    assert_failure(function.call(with_key(2042)).await, "InvalidRequest", "2042 bytes of text; give 1 to 2041");
    assert_eq!(function.answer(with_key(2041)).await["acquired"], true);
}

#[tokio::test]
async fn two_tenants_with_the_same_key_do_not_meet() {
    let function = Function::with(&[PER_TENANT]).await;
    let [blue, red] = ["blue", "red"].map(|tenant| function.call_for(tenant, acquire(tenant)));

    let (blue, red) = (blue.await.unwrap()["lock"].clone(), red.await.unwrap()["lock"].clone());

    assert_eq!((&blue["key"], &red["key"]), (&json!("customer-7"), &json!("customer-7")));
    assert!(function.is_held("blue/customer-7").await && function.is_held("red/customer-7").await);

    // A lock of another tenant is looked for among one's own.
    assert_failure(function.call_for("red", renew(&blue)).await, "LockLost", "the lock customer-7 ");
    let gone = json!({ "released": false, "reason": "gone" });
    assert_eq!(function.call_for("red", release(&blue)).await.unwrap(), gone);
    assert!(function.is_held("blue/customer-7").await && function.is_held("red/customer-7").await);

    assert_eq!(function.call_for("blue", release(&blue)).await.unwrap(), json!({ "released": true }));
    assert!(!function.is_held("blue/customer-7").await && function.is_held("red/customer-7").await);
}

#[tokio::test]
async fn a_tenant_s_prefix_comes_after_the_function_s_own() {
    let function = Function::with(&[PREFIX, PER_TENANT]).await;

    function.call_for("a/b", acquire("me")).await.unwrap();

    assert!(function.is_held("orders/a=2Fb/customer-7").await);
}

#[tokio::test]
async fn without_a_tenant_the_request_is_refused_and_nothing_is_written() {
    let function = Function::with(&[PER_TENANT]).await;

    assert_failure(function.call(acquire("me")).await, "InvalidRequest", "no tenant id");
    assert_failure(function.call_for("", acquire("me")).await, "InvalidRequest", "no tenant id");

    let rows = function.server.client().scan().table_name("locks").send().await.unwrap();
    assert_eq!(rows.count, 0);
}

#[tokio::test]
async fn a_variable_that_cannot_be_used_stops_the_start_by_its_name() {
    let server = DynamoDb::empty().await;
    for (name, value) in [
        ("LOCK_KEY_PREFIX", "orders"),
        ("LOCK_KEY_PREFIX", "once/"),
        ("LOCK_KEY_PREFIX", "orders/once/"),
        ("LOCK_PER_TENANT", "yes"),
        ("LOCK_PER_TENANT", "True"),
    ] {
        let error = deps(&server, &[(name, value)]).err().unwrap().to_string();
        assert!(error.starts_with(&format!("{name} ")), "{name}={value}: {error}");
    }
    for environment in [("LOCK_KEY_PREFIX", ""), ("LOCK_PER_TENANT", ""), ("LOCK_PER_TENANT", "false")] {
        assert!(deps(&server, &[environment]).is_ok(), "{environment:?}");
    }
}
