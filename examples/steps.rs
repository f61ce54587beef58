//! Work in three steps that takes longer than its lease: a checkpoint between two steps renews the lease. Then a caller
//! that was paused for longer than its lease writes too late. Its write is refused, because its fencing token is old.
//!
//! Run it with `cargo run --example steps`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Budget, LockClient};
use lambda_lock_local::LocalDynamoDb;
use std::time::Duration;
use tokio::time::sleep;

const LEASE: Duration = Duration::from_millis(500);

/// Writes the report unless a newer holder of the lock has written it. Returns whether it was written.
async fn save(dynamodb: &Client, report: &str, token: u64) -> Result<bool, aws_sdk_dynamodb::Error> {
    let written = dynamodb
        .update_item()
        .table_name("reports")
        .key("reportId", AttributeValue::S("report-7".to_owned()))
        .update_expression("SET report = :report, lastToken = :token")
        .condition_expression("attribute_not_exists(lastToken) OR lastToken <= :token")
        .expression_attribute_values(":report", AttributeValue::S(report.to_owned()))
        .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
        .send()
        .await;
    match written.map_err(aws_sdk_dynamodb::Error::from) {
        Ok(_) => Ok(true),
        Err(aws_sdk_dynamodb::Error::ConditionalCheckFailedException(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key"), ("reports", "reportId")]).await?; // name and key

    let dynamodb = local.client();
    let locks = LockClient::builder(dynamodb.clone(), "locks").build()?;
    let budget = Budget::lasting(Duration::from_secs(10));

    // This caller gets the lock, and is then paused, as in a sandbox that was frozen.
    let mut paused = locks.acquire("report-7").within(&budget).lease(LEASE).await?;
    println!("the first caller has fencing token {}, and is paused", paused.fencing_token());

    // The next caller waits until the lease of the first one is over.
    let mut lock = locks.acquire("report-7").within(&budget).lease(LEASE).await?;
    println!("the second caller has fencing token {}", lock.fencing_token());
    for step in 1..=3 {
        sleep(Duration::from_millis(300)).await; // the work of this step
        lock.checkpoint().await?; // renews the lease; fails with `Lost` if another caller has the lock
        println!("step {step} is done, {:.0?} of the lease are left", lock.remaining());
    }
    assert!(!lock.remaining().is_zero(), "the lease was not renewed");
    assert!(save(&dynamodb, "by the second caller", lock.fencing_token()).await?, "the holder's write was refused");

    // The first caller continues.
    let written = save(&dynamodb, "by the first caller", paused.fencing_token()).await?;
    println!("the late write of the first caller was {}", if written { "applied" } else { "refused" });
    assert!(!written, "the late write was applied");
    assert!(paused.checkpoint().await.is_err_and(|error| error.is_lost()), "the first caller still has the lock");

    lock.release().await?;
    Ok(())
}
