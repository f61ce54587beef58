//! Tests of the embedded DynamoDB as another process uses it: over HTTP, through the SDK.

#![allow(clippy::disallowed_methods, reason = "the test waits for a server to stop")]

use lambda_lock_local::{LocalDynamoDb, client};
use std::time::Duration;
use tokio::net::TcpStream;

#[tokio::test]
async fn it_serves_until_it_is_dropped() {
    let dynamodb = LocalDynamoDb::in_memory().await.unwrap();
    let client = client(dynamodb.endpoint());
    assert!(client.list_tables().send().await.unwrap().table_names().is_empty());

    let address = dynamodb.endpoint().strip_prefix("http://").unwrap().to_owned();
    drop(dynamodb);
    let refused = async {
        while TcpStream::connect(&address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), refused).await.expect("it still serves");
}

#[tokio::test]
async fn each_one_has_its_own_tables() {
    let (first, second) = (LocalDynamoDb::in_memory().await.unwrap(), LocalDynamoDb::in_memory().await.unwrap());
    let locks = lambda_lock::LockClient::builder(client(first.endpoint()), "locks").build().unwrap();
    locks.create_table().await.unwrap();
    assert_eq!(client(first.endpoint()).list_tables().send().await.unwrap().table_names(), ["locks"]);
    assert!(client(second.endpoint()).list_tables().send().await.unwrap().table_names().is_empty());
}
