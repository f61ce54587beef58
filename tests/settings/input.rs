//! Invalid input gets a clear error before any request. A table that does not fit gets an error
//! with the reason.

use lambda_lock::{Budget, Error, ErrorKind, LockClientBuilder};
use lambda_lock_testkit::{Process, Table, case, granted, secs};
use serde_json::json;
use std::time::Duration;

const LEASE: Duration = secs(20);

pub(crate) fn is_invalid(error: &Error, names: &str) {
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
    assert!(error.to_string().contains(names), "{error} does not name {names}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_work_is_refused_when_it_is_built() {
    let process = Table::none().process();
    let refused = |names: &str, change: fn(LockClientBuilder) -> LockClientBuilder| {
        is_invalid(&change(process.builder()).build().map(drop).unwrap_err(), names);
    };
    refused("ownerName", |builder| builder.key_attribute("ownerName"));
    refused("leaseEndsAt", |builder| builder.sort_key_attribute("leaseEndsAt"));
    refused("both called", |builder| builder.sort_key_attribute("key"));
    refused("both called", |builder| builder.ttl_attribute("key"));
    refused("0 bytes", |builder| builder.key_attribute(""));
    refused("256 bytes", |builder| builder.ttl_attribute("t".repeat(256)));
    refused("ttl_attribute", |builder| builder.ttl_retention(secs(1)));
    refused("could delete the row", |builder| builder.ttl_attribute("expiresAt").ttl_retention(secs(1)));
    refused("clock drift", |builder| builder.clock_drift(1.01));
    refused("clock drift", |builder| builder.clock_drift(-0.1));
    refused("timeout", |builder| builder.request_timeout(Duration::ZERO));
    refused("owner", |builder| builder.owner(""));
    refused("owner", |builder| builder.owner("o".repeat(2040)));
    for table in ["", "ab", "with space", "täble", "slash/es", "arn:aws:dynamodb:eu-central-1:1:tabel/locks"] {
        let built = lambda_lock::LockClient::builder(process.dynamodb(), table).build();
        is_invalid(&built.map(drop).unwrap_err(), "no name of a DynamoDB table");
    }

    for table in ["abc", "My_locks-1.test", "arn:aws:dynamodb:eu-central-1:123456789012:table/locks"] {
        lambda_lock::LockClient::builder(process.dynamodb(), table).build().unwrap();
    }

    assert!(process.take_sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_work_is_refused_before_any_request() {
    let process: Process = Table::new().process();
    let locks = process.locks("me");
    let budget = process.budget(LEASE);
    let acquire = |key: &str| locks.acquire(key).lease(LEASE);
    let long = "k".repeat(2049);

    for (refused, names) in [
        (acquire(""), "lock key is empty"),
        (acquire(&long), "2049 bytes"),
        (locks.acquire(("k", "s")).lease(LEASE), "sort key"),
        (acquire("k").lease(Duration::ZERO), "longer than 0"),
        (acquire("k").lease(secs(400 * 86_400)), "366 days"),
        (acquire("k").owner(""), "owner"),
        (acquire("k").workflow(""), "workflow"),
        (acquire("k").data(vec![0; 400 * 1024]), "409600"),
        (locks.acquire("k"), "needs a lease"),
        (locks.acquire("k").within(&Budget::unknown()), "unknown"),
    ] {
        is_invalid(&refused.try_once().await.map(drop).unwrap_err(), names);
    }

    is_invalid(&locks.acquire("k").await.map(drop).unwrap_err(), "budget");
    is_invalid(&locks.acquire("k").lease(LEASE).await.map(drop).unwrap_err(), "try_once");
    is_invalid(&locks.acquire("k").within(&Budget::unknown()).await.map(drop).unwrap_err(), "known end");
    is_invalid(&locks.acquire("").within(&budget).await.map(drop).unwrap_err(), "lock key is empty");
    is_invalid(&locks.operator().peek("").await.unwrap_err(), "lock key is empty");
    is_invalid(&locks.release_workflow("k", "").await.unwrap_err(), "workflow");
    assert!(process.take_sent().is_empty());

    let mut lock = granted(acquire("k").try_once()).await;
    process.take_sent();
    is_invalid(&lock.renew().lease(Duration::ZERO).await.unwrap_err(), "longer than 0");
    is_invalid(&lock.renew().data(vec![0; 400 * 1024]).await.unwrap_err(), "409600");
    assert!(process.take_sent().is_empty());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_and_a_wrong_key_schema_say_so() {
    for (what, table) in [("no table", Table::none()), ("another key", Table::with_keys(&["pk"]))] {
        let _case = case(what);
        let locks = table.process().locks("me");
        for error in [
            locks.acquire("k").lease(LEASE).try_once().await.map(drop).unwrap_err(),
            locks.operator().peek("k").await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Table, "{error:?}");
            let text = error.to_string();
            assert!(text.contains("key schema") && text.contains(r#"table "locks""#), "{text}");
        }
    }

    // The table has a sort key, but the client was not configured with it.
    let error = Table::with_keys(&["key", "sk"]).process().locks("me").operator().peek("k").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Table, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_table_helper_creates_what_the_client_needs_and_finds_nothing_wrong_with_it() {
    for sort_key in [false, true] {
        for ttl in [false, true] {
            let _case = case(format!("sort key: {sort_key}, TTL: {ttl}"));
            let table = Table::none();
            let process = table.process();
            let mut builder = process.builder().key_attribute("pk");
            if sort_key {
                builder = builder.sort_key_attribute("sk");
            }
            if ttl {
                builder = builder.ttl_attribute("expiresAt");
            }
            let locks = builder.build().unwrap();

            let missing = locks.operator().check_table().await.unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::Table, "{missing}");

            locks.operator().create_table().await.unwrap();
            locks.operator().create_table().await.unwrap();
            locks.operator().check_table().await.unwrap();
            let description = table.call("DescribeTable", &json!({"TableName": "locks"}));
            assert_eq!(description["Table"]["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST");
            let described = table.call("DescribeTimeToLive", &json!({"TableName": "locks"}));
            let status = described["TimeToLiveDescription"]["TimeToLiveStatus"].as_str().unwrap_or_default().to_owned();
            assert_eq!(status.starts_with("ENABL"), ttl, "{status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_wrong_with_a_table_is_reported() {
    let findings = |names: &'static [&'static str], change: fn(LockClientBuilder) -> LockClientBuilder| async move {
        let process = Table::with_keys(names).process();
        let error = change(process.builder()).build().unwrap().operator().check_table().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Table, "{error}");
        error.to_string()
    };

    let text = findings(&["id"], |builder| builder.sort_key_attribute("sk").ttl_attribute("expiresAt")).await;
    assert!(text.contains(r#"its partition key is called "id", but this client expects "key""#), "{text}");
    assert!(text.contains(r#"it has no sort key, but this client expects "sk""#), "{text}");
    assert!(text.contains(r#"its TTL is not switched on, but this client writes "expiresAt""#), "{text}");

    let text = findings(&["key", "sk"], |builder| builder).await;
    assert!(text.contains(r#"it has the sort key "sk", but this client expects none"#), "{text}");

    let table = Table::none();
    table.call(
        "CreateTable",
        &json!({"TableName": "locks", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "N"}],
            "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}]}),
    );

    let text = table.process().locks("me").operator().check_table().await.unwrap_err().to_string();
    assert!(text.contains("of type N, not S"), "{text}");

    let text = table.process().locks("me").operator().create_table().await.unwrap_err().to_string();
    assert!(text.contains("of type N, not S"), "an existing table is checked, not replaced: {text}");
}
