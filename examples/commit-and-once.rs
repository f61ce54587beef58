//! `once` does work one time for each key and stores the result, so an event that comes twice books an order once.
//! `commit` applies writes and the renewal of a lock in one transaction: a caller that lost its lock writes nothing.
//!
//! Run it with `cargo run --example commit-and-once`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use lambda_lock::{Budget, LockClient};
use lambda_lock_local::LocalDynamoDb;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

/// A write that adds an amount to an account.
fn add(account: &str, amount: i64) -> Result<TransactWriteItem, BuildError> {
    let update = Update::builder()
        .table_name("accounts")
        .key("accountId", AttributeValue::S(account.to_owned()))
        .update_expression("ADD cents :amount")
        .expression_attribute_values(":amount", AttributeValue::N(amount.to_string()))
        .build()?;
    Ok(TransactWriteItem::builder().update(update).build())
}

async fn cents(dynamodb: &Client, account: &str) -> Result<i64, Failure> {
    let key = AttributeValue::S(account.to_owned());
    let read = dynamodb.get_item().table_name("accounts").key("accountId", key).consistent_read(true).send().await?;
    let cents = read.item().and_then(|item| item.get("cents")).and_then(|cents| cents.as_n().ok());
    Ok(cents.map_or("0", String::as_str).parse()?)
}

/// Books an order. The writes and the stored receipt are one transaction.
async fn book(order: &str, locks: &LockClient, budget: &Budget) -> Result<String, Failure> {
    let once = locks.once(order).payload(&order).within(budget);
    let outcome = once.run_and_commit(async |attempt| {
        let receipt = format!("receipt of {order}, attempt {}", attempt.number());
        Ok::<_, Failure>((receipt, vec![add("shop", 1250)?]))
    });
    let outcome = outcome.await?;
    let how = if outcome.is_replayed() { "read from the record" } else { "booked" };
    let receipt = outcome.into_result();
    println!("{how}: {receipt}");
    Ok(receipt)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key"), ("accounts", "accountId")]).await?; // name and key

    let dynamodb = local.client();
    let locks = LockClient::builder(dynamodb.clone(), "locks").build()?;
    let budget = Budget::lasting(Duration::from_secs(10));

    let receipts = [book("order-1", &locks, &budget).await?, book("order-1", &locks, &budget).await?];
    assert_eq!(receipts[0], receipts[1], "the second event got another receipt");
    assert_eq!(cents(&dynamodb, "shop").await?, 1250, "the order was not booked exactly once");

    // Two writes, applied together, and only while this caller has the lock.
    let mut lock = locks.acquire("transfer").within(&budget).await?;
    lock.commit([add("shop", -250)?, add("tax-office", 250)?]).await?;

    // The same work was started again elsewhere, and has the lock now. The commit of the first caller is refused.
    let again = locks.reclaim(lock.to_saved()).within(&budget).await?;
    let late = lock.commit([add("shop", -250)?, add("tax-office", 250)?]).await;
    println!("the late commit: {}", late.as_ref().err().map_or("applied".to_owned(), ToString::to_string));
    assert!(late.is_err_and(|error| error.is_lost()), "a caller without the lock has committed");
    again.release().await?;

    let balances = (cents(&dynamodb, "shop").await?, cents(&dynamodb, "tax-office").await?);
    println!("shop and tax office have {balances:?} cents");
    assert_eq!(balances, (1000, 250));
    Ok(())
}
