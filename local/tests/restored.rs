//! A restored lock table: the script that raises its tokens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockClient;
use lambda_lock_local::{LocalDynamoDb, python_with_boto3};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::process::Command;

const LEASE: Duration = Duration::from_secs(60);

/// Runs the script. Returns what it says, and whether it succeeded.
async fn raise_tokens(dynamodb: &LocalDynamoDb, arguments: &[&str]) -> Option<(String, bool)> {
    let python = python_with_boto3().unwrap()?;
    let output = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/raise_tokens.py"))
        .args(arguments)
        .env("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.endpoint())
        .envs([("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "eu-central-1")])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    Some((String::from_utf8(said).unwrap(), output.status.success()))
}

async fn granted(locks: &LockClient, key: &str) -> u64 {
    let lock = locks.try_acquire(key).lease(LEASE).data(vec![7; 8_000]).await.unwrap().granted().unwrap();
    let token = lock.fencing_token();
    lock.release().await.unwrap();
    token
}

/// Puts the row's token back, as a restore does.
async fn put_back(dynamodb: &LocalDynamoDb, key: &str, token: u64) {
    let update = dynamodb.client().update_item().table_name("locks").key("key", AttributeValue::S(key.to_owned()));
    let update = update.update_expression("SET fencingToken = :token");
    let update = update.expression_attribute_values(":token", AttributeValue::N(token.to_string()));
    update.send().await.unwrap();
}

#[tokio::test]
async fn after_a_restore_and_the_script_no_token_is_given_twice() {
    let dynamodb = LocalDynamoDb::with_tables(&[("locks", "key")]).await.unwrap();
    let locks = LockClient::builder(dynamodb.client(), "locks").build().unwrap();
    // More than DynamoDB returns at once.
    let keys: Vec<_> = (0..200).map(|number| format!("k-{number}")).collect();
    let mut given = 0;
    for key in &keys {
        given = given.max(granted(&locks, key).await);
    }
    put_back(&dynamodb, "k-0", given - 1000).await;
    // A row without a token, as other clients write it, stays as it is.
    let row = [("key", "java"), ("ownerName", "j")]
        .map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned())));
    dynamodb.client().put_item().table_name("locks").set_item(Some(row.into())).send().await.unwrap();

    // A row that is no lock record stops nothing, and a clock may have been ahead.
    let put = |key: &str, token| {
        let put = dynamodb.client().put_item().table_name("locks").item("key", AttributeValue::S(key.to_owned()));
        put.item("fencingToken", token).send()
    };
    put("hostile", AttributeValue::S("many".to_owned())).await.unwrap();
    let ahead = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(1800);
    put("ahead", AttributeValue::N(ahead.as_millis().to_string())).await.unwrap();

    let Some(shown) = raise_tokens(&dynamodb, &["--table", "locks"]).await else { return };
    assert_eq!(shown, ("201 rows have an older token: raise them with --write\n".to_owned(), true));
    assert!(locks.peek("k-0").await.unwrap().unwrap().fencing_token.unwrap() < given, "it was only asked");

    let (raised, ok) = raise_tokens(&dynamodb, &["--table", "locks", "--write"]).await.unwrap();
    assert!(ok && raised.starts_with("201 tokens were raised to "), "{raised}");
    assert!(granted(&locks, "k-0").await > given && granted(&locks, "k-199").await > given);
    let java = dynamodb.client().get_item().table_name("locks").key("key", AttributeValue::S("java".to_owned()));
    assert_eq!(java.send().await.unwrap().item.unwrap().len(), 2);
}

#[tokio::test]
async fn a_missing_table_is_reported_by_its_name() {
    let dynamodb = LocalDynamoDb::with_tables(&[("locks", "key")]).await.unwrap();
    let Some((said, ok)) = raise_tokens(&dynamodb, &["--table", "other"]).await else { return };
    assert!(!ok && said.starts_with("other: "), "{said}");
    assert!(!raise_tokens(&dynamodb, &[]).await.unwrap().1);
}
