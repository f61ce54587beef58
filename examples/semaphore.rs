//! A gateway takes three connections. Eight callers use it at the same time, and never more than three are inside. A fourth
//! caller is told who has the places, and gets the place of a caller that died when its lease has ended.
//!
//! Run it with `cargo run --example semaphore`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use futures_util::future::try_join_all;
use lambda_lock::{Budget, LockClient, Tried};
use lambda_lock_local::LocalDynamoDb;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::sleep;

type Failure = Box<dyn std::error::Error>;

const CONNECTIONS: u32 = 3;
/// How long a call of the gateway takes at most.
const CALL: Duration = Duration::from_secs(2);

/// Counts how many calls are inside, and how many there were at most.
#[derive(Default)]
struct Gateway {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Gateway {
    async fn call(&self) {
        self.most.fetch_max(self.inside.fetch_add(1, SeqCst) + 1, SeqCst);
        sleep(Duration::from_millis(150)).await;
        self.inside.fetch_sub(1, SeqCst);
    }
}

/// One caller, in a process of its own.
async fn call(number: usize, locks: LockClient, gateway: &Gateway) -> Result<(), Failure> {
    let budget = Budget::lasting(Duration::from_secs(20)); // the time that this caller has
    let lock = locks.semaphore("gateway", CONNECTIONS).acquire().within(&budget).await?; // waits while all places are held
    println!("caller {number} has {} with fencing token {}", lock.key(), lock.fencing_token());
    lock.ensure_remaining(CALL)?; // a caller that stood still may have lost the place
    // A call without an answer may still be inside: then do not release its place, and the lease frees it.
    tokio::time::timeout(CALL, gateway.call()).await?;
    lock.release().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?; // name and partition key of each table
    let client = || LockClient::builder(local.client(), "locks").build();

    let gateway = Gateway::default();
    let mut callers = Vec::new();
    for number in 1..=8 {
        callers.push(call(number, client()?, &gateway));
    }
    try_join_all(callers).await?;
    println!("at most {} were inside at once", gateway.most.load(SeqCst));
    assert!(gateway.most.load(SeqCst) <= 3, "the gateway takes three connections");

    // Three callers have all places. One of them dies without a release.
    let locks = client()?;
    let places = locks.semaphore("gateway", CONNECTIONS);
    let mut living = Vec::new();
    for _ in 1..CONNECTIONS {
        living.push(places.acquire().lease(Duration::from_secs(60)).try_once().await?.granted().ok_or("full")?);
    }
    let died = places.acquire().lease(Duration::from_secs(1)).try_once().await?.granted().ok_or("full")?;
    let (place, token) = (died.place(), died.fencing_token());
    let died = died.save().key();

    let other = client()?;
    let places = other.semaphore("gateway", CONNECTIONS);
    let Tried::Refused(holders) = places.acquire().lease(CALL).try_once().await? else {
        return Err("a fourth caller was inside".into());
    };
    for refusal in &holders {
        println!("{} is held by {}", refusal.key, refusal.holder);
    }
    assert_eq!(holders.len(), 3, "each place has a holder");

    let lock = places.acquire().within(&Budget::lasting(Duration::from_secs(20))).await?;
    println!("{died} is taken over: its fencing token was {token}, and is {}", lock.fencing_token());
    assert_eq!(lock.place(), place, "only the dead caller's place is free");
    assert!(lock.fencing_token() > token, "the new token is not larger");
    lock.release().await?;
    for lock in living {
        lock.release().await?;
    }
    Ok(())
}
