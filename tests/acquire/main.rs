//! Acquiring and taking over: which locks are granted, which are not, and what a refusal reports.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod attributes;
mod between_calls;
mod budgets;
mod giving_up;
mod granting;
mod hostile_rows;
mod line;
mod observation;
mod peers;
mod snapshots;
mod takeover;
mod waiting;
mod wrong_clocks;

use lambda_lock::{LockClient, Observation, Tried};
use lambda_lock_testkit::{acquired, secs};
use std::time::Duration;

const LEASE: Duration = secs(20);

/// Acquires the lock and never releases it, as a holder that dies.
async fn die_holding(locks: &LockClient, lease: Duration) -> u64 {
    let lock = acquired(locks, lease).await;
    lock.save().fencing_token()
}

async fn refused(locks: &LockClient) -> Observation {
    match locks.acquire("k").lease(LEASE).try_once().await.unwrap() {
        Tried::Granted(_) => panic!("granted"),
        Tried::Refused(held) => held.observation,
    }
}
