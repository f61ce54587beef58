//! A restored lock table: `raise-tokens`.

use crate::golden::{assert_golden, golden};
use crate::place::{LEASE, Place, TABLE};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_local::MultiRegion;
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

async fn granted(place: &Place, key: &str) -> u64 {
    let locks = place.locks("test");
    let lock = locks.acquire(key).lease(LEASE).data(vec![7; 8_000]).try_once().await.unwrap().granted().unwrap();
    let token = lock.fencing_token();
    lock.release().await.unwrap();
    token
}

async fn put(place: &Place, key: &str, token: Option<AttributeValue>) {
    let put = place.local.client().put_item().table_name(TABLE).item("key", AttributeValue::S(key.to_owned()));
    let put = if let Some(token) = token { put.item("fencingToken", token) } else { put };
    put.send().await.unwrap();
}

async fn row(place: &Place, key: &str) -> HashMap<String, AttributeValue> {
    let get = place.local.client().get_item().table_name(TABLE).key("key", AttributeValue::S(key.to_owned()));
    get.send().await.unwrap().item.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_lowered() {
    let place = Place::new().await;
    // No token of ours is as large.
    let huge = AttributeValue::N("9".repeat(30));
    put(&place, "k", Some(huge.clone())).await;
    // By less than a machine number tells.
    let larger = AttributeValue::N(format!("7.{}1", "0".repeat(30)));
    put(&place, "larger", Some(larger.clone())).await;

    let raised = place.run(&["raise-tokens", "--above", "7", "--yes", "--json"]).await.done();

    assert_eq!(raised, "{\"leftAlone\":0,\"raised\":0,\"to\":7}\n");
    assert_eq!(row(&place, "k").await["fencingToken"], huge);
    assert_eq!(row(&place, "larger").await["fencingToken"], larger);
}

/// Where only what may be old can be read, a token that was given last could be missed.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_may_be_old_is_read() {
    let place = Place::new().await;
    granted(&place, "k").await;
    let regions = ["eu-central-1", "eu-west-1", "eu-west-3"];
    let table = MultiRegion::start(place.local.endpoint(), &regions, None, MultiRegion::ONE_WAY).await.unwrap();
    let raise = async || {
        let mut command = place.command();
        command.env("AWS_ENDPOINT_URL_DYNAMODB", table.endpoint(regions[0]).unwrap());
        // All tokens are larger, so it only reads.
        command.args(["raise-tokens", "--table", TABLE, "--above", "1"]).output().await.unwrap()
    };

    table.isolate(regions[0]);
    let refused = raise().await;
    table.rejoin(regions[0]);
    let raised = raise().await;

    assert!(!refused.status.success() && raised.status.success(), "{refused:?} {raised:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_no_token_is_given_twice() {
    let place = Place::new().await;
    // More than DynamoDB returns at once.
    let mut given = 0;
    for number in 0..200 {
        given = given.max(granted(&place, &format!("k-{number}")).await);
    }
    // As a restore does it.
    let update = place.local.client().update_item().table_name(TABLE).key("key", AttributeValue::S("k-0".to_owned()));
    let update = update.update_expression("SET fencingToken = :token");
    update.expression_attribute_values(":token", AttributeValue::N((given - 1000).to_string())).send().await.unwrap();
    // Other clients write no token, and a row that is no lock record stops nothing.
    put(&place, "java", None).await;
    put(&place, "hostile", Some(AttributeValue::S("many".to_owned()))).await;
    put(&place, "negative", Some(AttributeValue::N("-1.5".to_owned()))).await;
    let ahead = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(1800);
    put(&place, "ahead", Some(AttributeValue::N(ahead.as_millis().to_string()))).await;

    golden(&place, "raise-tokens-without-yes", &["raise-tokens"]).await;
    let token = async || place.locks("test").operator().peek("k-0").await.unwrap().unwrap().fencing_token.unwrap();
    assert!(token().await < given, "it was only asked");
    golden(&place, "raise-tokens", &["raise-tokens", "--yes"]).await;
    assert!(token().await > given);
    assert!(granted(&place, "k-0").await > given && granted(&place, "k-199").await > given);
    assert_eq!(row(&place, "java").await.len(), 1);

    let above = (given + 100_000_000).to_string();
    let raised = place.run(&["raise-tokens", "--above", &above, "--yes", "--json"]).await.done();
    assert_eq!(raised, format!("{{\"leftAlone\":0,\"raised\":202,\"to\":{above}}}\n"));
    assert_golden("raise-tokens-again", &place.run(&["raise-tokens"]).await);
    golden(&place, "raise-tokens-table", &["raise-tokens", "--table", "other"]).await;
}
