//! Two callers add money to one account under a lock. The second caller waits until the first one has released it, so
//! no deposit is lost.
//!
//! Run it with `cargo run --example first-lock`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lambda_lock::{Budget, Error, LockClient};
use lambda_lock_local::LocalDynamoDb;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Reads the balance and writes it back a moment later. Two callers at the same time would lose a deposit.
async fn deposit(caller: &str, locks: &LockClient, balance: &AtomicU64) -> Result<Duration, Error> {
    let budget = Budget::lasting(Duration::from_secs(10)); // the time that this caller has
    let asked = Instant::now();
    locks
        .with_lock("account-7", &budget, async |lock| {
            let waited = asked.elapsed();
            println!("{caller} has the lock after {waited:.0?}, with fencing token {}", lock.fencing_token());
            let before = balance.load(SeqCst);
            sleep(Duration::from_millis(300)).await; // the work
            balance.store(before + 100, SeqCst);
            Ok(waited)
        })
        .await // released, whether the work succeeded or failed
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?; // name and partition key of each table

    let locks = LockClient::builder(local.client(), "locks").build()?;
    let balance = AtomicU64::new(0);
    let (a, b) = tokio::try_join!(deposit("caller A", &locks, &balance), deposit("caller B", &locks, &balance))?;

    println!("the balance is {}", balance.load(SeqCst));
    assert_eq!(balance.load(SeqCst), 200, "a deposit was lost");
    assert!(a.max(b) >= Duration::from_millis(300), "neither caller waited");
    Ok(())
}
