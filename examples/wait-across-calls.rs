//! Calls that live for a fraction of a second wait together for a lease that is longer than any of them. Each call
//! tries once, and passes what it observed to the next call.
//!
//! Run it with `cargo run --example wait-across-calls`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lambda_lock::{LockClient, Observation, Tried};
use lambda_lock_local::LocalDynamoDb;
use std::time::{Duration, Instant};
use tokio::time::sleep;

type Failure = Box<dyn std::error::Error>;

/// The result of a call.
enum Answer {
    Done(u64),
    TryAgain { event: String },
}

/// One short call. `event` has the observation of the call before it, and `waited` is the time since then.
async fn call(locks: &LockClient, event: Option<&str>, waited: Duration) -> Result<Answer, Failure> {
    let mut request = locks.acquire("customer-7").lease(Duration::from_secs(5));
    if let Some(event) = event {
        let seen: Observation = serde_json::from_str(event)?;
        request = request.observation(seen.and_waited(waited)); // never more than the time that has really passed
    }
    match request.try_once().await? {
        Tried::Granted(lock) => {
            let token = lock.fencing_token();
            lock.release().await?; // … after the work …
            Ok(Answer::Done(token))
        }
        Tried::Refused(held) => Ok(Answer::TryAgain { event: serde_json::to_string(&held.observation)? }),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?; // name and partition key of each table

    // Without wall clocks, a dead holder is recognised only by its lease, which has to be observed.
    let locks = LockClient::builder(local.client(), "locks").without_wall_clock_takeover().build()?;

    // A caller with a lease of one second that dies without a release.
    let died =
        locks.acquire("customer-7").lease(Duration::from_secs(1)).try_once().await?.granted().ok_or("held")?.save();
    println!("{} had fencing token {}, and died", died.owner(), died.fencing_token());

    let (mut event, mut calls, mut ended) = (None, 0, Instant::now());
    let token = loop {
        calls += 1;
        let started = Instant::now();
        match call(&locks, event.as_deref(), ended.elapsed()).await? {
            Answer::Done(token) => break token,
            Answer::TryAgain { event: next } => event = Some(next),
        }
        ended = Instant::now();
        println!("call {calls} took {:.1?} and saw {}", started.elapsed(), event.as_deref().unwrap_or_default());
        // A call without an observation is refused, however long the holder has been dead.
        assert!(matches!(call(&locks, None, Duration::ZERO).await?, Answer::TryAgain { .. }), "granted at once");
        assert!(calls < 20, "the calls do not get the lock");
        sleep(Duration::from_millis(250)).await; // a `Wait` state, or the visibility timeout of a message
    };
    println!("call {calls} got the lock with fencing token {token}");
    assert!(token > died.fencing_token(), "the new token is not larger");
    Ok(())
}
