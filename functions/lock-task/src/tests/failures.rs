use super::{Function, acquire, trusting, waker};
use crate::deps::Deps;
use crate::handler::handler;
use lambda_lock::LockClient;
use lambda_lock_functions::test_support::{DynamoDb, assert_failure, event, locks_answered};
use serde_json::{Value, json};

/// Returns one request of every action, with a lock that was once granted.
async fn every_action() -> [Value; 3] {
    let lock = Function::start().await.lock("me").await;
    [
        acquire("me"),
        json!({ "action": "renew", "lock": lock, "leaseSeconds": 300 }),
        json!({ "action": "release", "lock": lock }),
    ]
}

async fn all_fail(locks: LockClient, error_type: &str, contains: &str) {
    let deps =
        Deps { locks, sort_key: false, per_tenant: false, max_clock_skew: None, trust: trusting(), waker: waker() };
    for request in every_action().await {
        assert_failure(handler(event(&request, 1.2), &deps).await, error_type, contains);
    }
}

#[tokio::test]
async fn a_missing_table_is_a_table_error() {
    all_fail(DynamoDb::empty().await.locks(&[]), "LockTableError", "check its name").await;
}

#[tokio::test]
async fn a_wrong_key_schema_is_a_table_error() {
    let server = DynamoDb::with_table(&[("LOCK_KEY_ATTRIBUTE", "id")]).await;
    all_fail(server.locks(&[]), "LockTableError", "key schema").await;
    let server = DynamoDb::with_table(&[("LOCK_SORT_KEY_ATTRIBUTE", "sk")]).await;
    all_fail(server.locks(&[]), "LockTableError", "key schema").await;
}

#[tokio::test]
async fn denied_access_is_a_table_error() {
    for code in ["AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"] {
        all_fail(locks_answered(400, code), "LockTableError", "access is denied").await;
    }
}

#[tokio::test]
async fn throttling_that_outlasts_the_time_is_unknown() {
    all_fail(locks_answered(400, "ProvisionedThroughputExceededException"), "LockUnknown", "throttled or refused")
        .await;
}

#[tokio::test]
async fn responses_that_prove_nothing_are_unknown() {
    all_fail(locks_answered(500, "InternalServerError"), "LockUnknown", "outcome unknown").await;
}

#[tokio::test]
async fn why_there_was_no_response_stands_behind_the_sentence() {
    all_fail(locks_answered(503, "Busy"), "LockUnknown", "(cause: HTTP status 503").await;
    all_fail(locks_answered(400, "ProvisionedThroughputExceededException"), "LockUnknown", "as the script says").await;
    let nobody_listens = [("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")];
    all_fail(DynamoDb::empty().await.locks(&nobody_listens), "LockUnknown", "Connection refused").await;
}

#[tokio::test]
async fn a_row_that_is_no_lock_is_an_invalid_record() {
    let function = Function::start().await;
    function.server.put(&[("key", "customer-7"), ("colour", "blue")]).await;
    assert_failure(function.call(acquire("me")).await, "InvalidRecord", "customer-7");
}
