//! Tests that DynamoDB Local is fetched, starts, and stops when it is dropped.

#![allow(clippy::disallowed_methods, reason = "the test waits for a server to stop")]

use lambda_lock::{LockClient, Tried};
use lambda_lock_local::{DynamoDbLocal, client};
use lambda_lock_testkit::soon_so;
use std::time::Duration;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_lock_works_on_dynamodb_local_which_serves_until_it_is_dropped() {
    let Some(dynamodb) = DynamoDbLocal::start().await.unwrap() else { return };
    let locks = LockClient::builder(client(dynamodb.endpoint()), "locks").build().unwrap();
    locks.operator().create_table().await.unwrap();
    let tried = locks.acquire("k").lease(Duration::from_secs(60)).try_once().await.unwrap();
    let refused = locks.acquire("k").lease(Duration::from_secs(60)).try_once().await.unwrap();
    assert!(matches!(refused, Tried::Refused(_)));
    tried.granted().unwrap().release().await.unwrap();

    let address = dynamodb.endpoint().strip_prefix("http://").unwrap().to_owned();
    drop(dynamodb);
    soon_so("it serves no more", async || TcpStream::connect(&address).await.is_err()).await;
}
