//! One function acquires a lock and hands it over as JSON. The next function, with a client of its own, continues with
//! the same grant and releases it. No other caller gets the lock in between.
//!
//! Run it with `cargo run --example hand-over`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lambda_lock::{Budget, LockClient, SavedLock, Tried};
use lambda_lock_local::LocalDynamoDb;
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

/// The first function. Its response is the event of the second one.
async fn reserve(locks: &LockClient) -> Result<String, Failure> {
    let budget = Budget::lasting(Duration::from_secs(5));
    let lease = Duration::from_secs(30); // lasts until the second function begins
    let lock = locks.acquire("order-1").within(&budget).lease(lease).await?;
    println!("reserved under fencing token {}", lock.fencing_token());
    let saved: SavedLock = lock.save(); // ends the guard, and the lock stays held
    Ok(serde_json::to_string(&saved)?)
}

/// The second function, in another process.
async fn ship(locks: &LockClient, event: &str) -> Result<u64, Failure> {
    let budget = Budget::lasting(Duration::from_secs(5));
    let saved: SavedLock = serde_json::from_str(event)?;
    let lock = locks.resume(saved).within(&budget).await?; // fails with `Lost` if the lock is no longer ours
    let token = lock.fencing_token();
    println!("shipped under fencing token {token}");
    lock.release().await?;
    Ok(token)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?; // name and partition key of each table

    let first = LockClient::builder(local.client(), "locks").build()?;
    let second = LockClient::builder(local.client(), "locks").build()?;
    let other = LockClient::builder(local.client(), "locks").build()?;

    let event = reserve(&first).await?;
    println!("handed over: {event}");
    let Tried::Refused(held) = other.acquire("order-1").lease(Duration::from_secs(5)).try_once().await? else {
        return Err("another caller got the lock between the two functions".into());
    };
    println!("another caller is refused: {} has the lock", held.holder);

    let handed_over: SavedLock = serde_json::from_str(&event)?;
    let token = ship(&second, &event).await?;
    assert_eq!(token, handed_over.fencing_token(), "the second function has another grant");

    // Now the lock is free. A second copy of the event cannot resume the old grant.
    let Tried::Granted(lock) = other.acquire("order-1").lease(Duration::from_secs(5)).try_once().await? else {
        return Err("the lock was not released".into());
    };
    assert!(lock.fencing_token() > token, "the new token is not larger");
    let repeated = ship(&second, &event).await;
    println!("the same event again: {}", repeated.as_ref().err().map_or("shipped".to_owned(), ToString::to_string));
    assert!(repeated.is_err(), "an order was shipped twice");
    lock.release().await?;
    Ok(())
}
