//! Tests of the authorising proxy in front of the embedded DynamoDB, with the SDK and the lock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "the tests read the clock")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use lambda_lock::LockClient;
use lambda_lock_local::authorize::{AuthorizingProxy, Fate, Grant, Role};
use lambda_lock_local::{LocalDynamoDb, client, config};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn on(table: &str, action: &str) -> Grant {
    Grant {
        action: format!("dynamodb:{action}"),
        resource: format!("arn:aws:dynamodb:eu-central-1:123456789012:table/{table}"),
    }
}

/// Starts the embedded server with a lock table, and a proxy in front of it that knows one caller.
async fn proxy(allows: &[Grant]) -> (LocalDynamoDb, AuthorizingProxy) {
    let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
    LockClient::builder(client(dynamodb.endpoint()), "locks").build().unwrap().create_table().await.unwrap();
    let roles = BTreeMap::from([("a-function".to_owned(), allows.iter().cloned().collect::<Role>())]);
    let proxy = AuthorizingProxy::start(dynamodb.endpoint(), roles).await.unwrap();
    (dynamodb, proxy)
}

fn through(proxy: &AuthorizingProxy, caller: &str) -> Client {
    let credentials = Credentials::new(caller, "secret", None, None, "test");
    let config = config(proxy.endpoint()).region(Region::new("eu-central-1")).credentials_provider(credentials);
    Client::from_conf(config.build())
}

fn locks(proxy: &AuthorizingProxy) -> LockClient {
    LockClient::builder(through(proxy, "a-function"), "locks").build().unwrap()
}

#[tokio::test]
async fn a_permitted_request_works_and_is_recorded() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "UpdateItem"), on("locks", "GetItem")]).await;
    let locks = locks(&proxy);
    assert!(proxy.used("a-function").is_empty());
    let lock = locks.try_acquire("k").lease(Duration::from_secs(9)).await.unwrap().granted().unwrap();
    lock.release().await.unwrap();
    assert_eq!(proxy.used("a-function"), Role::from([on("locks", "UpdateItem")]));
    locks.peek("k").await.unwrap();
    assert_eq!(proxy.used("a-function"), Role::from([on("locks", "UpdateItem"), on("locks", "GetItem")]));
    assert!(proxy.used("another").is_empty());
}

#[tokio::test]
async fn a_request_that_is_not_permitted_is_denied_by_name_and_not_applied() {
    let (dynamodb, proxy) = proxy(&[on("locks", "GetItem"), on("orders", "UpdateItem")]).await;
    let error = locks(&proxy).try_acquire("k").lease(Duration::from_secs(9)).await.unwrap_err();
    assert!(error.is_denied(), "{error}");
    let said = format!("{error}");
    let expected = "assumed-role/a-function/a-function is not authorized to perform: dynamodb:UpdateItem on resource: \
                    arn:aws:dynamodb:eu-central-1:123456789012:table/locks";
    let detail = through(&proxy, "a-function").update_item().table_name("locks").send().await.unwrap_err();
    assert_eq!(detail.code(), Some("AccessDeniedException"));
    assert!(detail.message().unwrap().contains(expected), "{detail:?}; the lock said {said}");
    assert!(proxy.used("a-function").is_empty());
    let items = client(dynamodb.endpoint()).scan().table_name("locks").send().await.unwrap();
    assert_eq!(items.count, 0);
}

#[tokio::test]
async fn a_transaction_is_denied_when_one_item_is() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "UpdateItem")]).await;
    let update = Update::builder()
        .table_name("locks")
        .key("key", AttributeValue::S("k".into()))
        .update_expression("SET a = :a")
        .expression_attribute_values(":a", AttributeValue::S("a".into()))
        .build()
        .unwrap();
    let put = Put::builder().table_name("locks").item("key", AttributeValue::S("l".into())).build().unwrap();
    let client = through(&proxy, "a-function");
    let both = client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().update(update.clone()).build())
        .transact_items(TransactWriteItem::builder().put(put).build());
    let error = both.send().await.unwrap_err();
    assert_eq!(error.code(), Some("AccessDeniedException"));
    assert!(error.message().unwrap().contains("dynamodb:PutItem"), "{error:?}");
    let one = client.transact_write_items().transact_items(TransactWriteItem::builder().update(update).build());
    one.send().await.unwrap();
}

#[tokio::test]
async fn a_caller_without_a_role_is_not_recognised() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "GetItem")]).await;
    let get = through(&proxy, "a-stranger").get_item().table_name("locks").key("key", AttributeValue::S("k".into()));
    assert_eq!(get.send().await.unwrap_err().code(), Some("UnrecognizedClientException"));
}

#[tokio::test]
async fn an_answer_can_be_late_or_lost_or_never_come() {
    let (_dynamodb, proxy) = proxy(&[on("locks", "UpdateItem"), on("locks", "GetItem")]).await;
    let locks = LockClient::builder(through(&proxy, "a-function"), "locks");
    let locks = locks.request_timeout(Duration::from_millis(400)).build().unwrap();
    let lease = Duration::from_secs(9);

    let calls = AtomicU32::new(0);
    proxy.decide(move |_| if calls.fetch_add(1, Ordering::SeqCst) == 0 { Fate::AnswerLost } else { Fate::Answered });
    locks.try_acquire("lost").lease(lease).await.unwrap().granted().unwrap().release().await.unwrap();

    let delay = Duration::from_millis(100);
    proxy.decide(move |_| Fate::AnsweredAfter(delay));
    let started = Instant::now();
    locks.try_acquire("late").lease(lease).await.unwrap().granted().unwrap().release().await.unwrap();
    assert!(started.elapsed() >= 2 * delay, "{:?}", started.elapsed());

    proxy.decide(|_| Fate::Swallowed);
    let error = locks.try_acquire("swallowed").lease(lease).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    proxy.decide(|_| Fate::Answered);
    assert!(locks.peek("swallowed").await.unwrap().is_none());
}

#[tokio::test]
async fn a_request_can_be_lost_or_applied_after_its_caller_has_given_up() {
    let (dynamodb, proxy) = proxy(&[on("locks", "UpdateItem"), on("locks", "GetItem")]).await;
    let once = RetryConfig::disabled();
    let update = async |key: &str| {
        let update = through(&proxy, "a-function").update_item().table_name("locks");
        let update = update.key("key", AttributeValue::S(key.to_owned())).customize();
        let timeout = TimeoutConfig::builder().operation_timeout(Duration::from_millis(100)).build();
        let patience = aws_sdk_dynamodb::Config::builder().timeout_config(timeout).retry_config(once.clone());
        update.config_override(patience).send().await.is_ok()
    };
    let is_there = async |key: &str| {
        let get = client(dynamodb.endpoint()).get_item().table_name("locks");
        get.key("key", AttributeValue::S(key.to_owned())).send().await.unwrap().item.is_some()
    };
    proxy.decide(|_| Fate::RequestLost);
    assert!(!update("lost").await);
    proxy.decide(|_| Fate::AppliedLate(Duration::from_millis(300)));
    assert!(!update("late").await);
    assert_eq!((is_there("lost").await, is_there("late").await), (false, false));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((is_there("lost").await, is_there("late").await), (false, true));
}
