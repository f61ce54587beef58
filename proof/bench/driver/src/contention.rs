//! Contenders for one lock. Each has a client of its own.

use crate::budget;
use lambda_lock::LockClient;
use lambda_lock_bench_driver::Error;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Contention {
    key: String,
    pub(crate) contenders: u32,
    rounds: u32,
    work_millis: Option<u64>,
    /// Whether callers wait in line from the beginning.
    #[serde(default)]
    in_turn: bool,
    wait_millis: u64,
}

/// Lets each contender take `rounds` turns. Returns how long all turns took, how often two contenders held the lock
/// at once, and of each turn when its caller came, was granted the lock and began to release it.
pub(crate) async fn contend(
    contenders: Vec<LockClient>,
    lease: Duration,
    contention: Contention,
) -> Result<Value, Error> {
    let holders = Arc::new(Holders::default());
    let began = Instant::now();
    let mut turns = JoinSet::new();
    for contender in contenders {
        let (contention, holders) = (contention.clone(), Arc::clone(&holders));
        turns.spawn(async move { take_turns(&contender, lease, &contention, &holders, began).await });
    }
    let mut taken = Vec::new();
    while let Some(turns) = turns.join_next().await {
        taken.extend(turns??);
    }
    let overlaps = holders.overlaps.load(Ordering::SeqCst);
    Ok(json!({ "micros": began.elapsed().as_micros() as u64, "overlaps": overlaps, "turns": taken }))
}

async fn take_turns(
    locks: &LockClient,
    lease: Duration,
    contention: &Contention,
    holders: &Holders,
    began: Instant,
) -> Result<Vec<[u64; 3]>, Error> {
    let micros = || began.elapsed().as_micros() as u64;
    let mut turns = Vec::new();
    let work = Duration::from_millis(contention.work_millis.unwrap_or_default());
    for _ in 0..contention.rounds {
        let budget = budget(Duration::from_millis(contention.wait_millis));
        let came = micros();
        let acquire = locks.acquire(&contention.key).within(&budget).lease(lease);
        let lock = if contention.in_turn { acquire.in_turn().await? } else { acquire.await? };
        let granted = micros();
        holders.enter();
        if !work.is_zero() {
            // tokio's timers round up to whole milliseconds. The drivers of the other clients sleep exactly as long as
            // requested.
            tokio::task::spawn_blocking(move || std::thread::sleep(work)).await?;
        }
        holders.leave();
        turns.push([came, granted, micros()]);
        lock.release().await?;
    }
    Ok(turns)
}

/// Counts the contenders that hold the lock, to notice two at once.
#[derive(Default)]
struct Holders {
    inside: AtomicU32,
    overlaps: AtomicU32,
}

impl Holders {
    fn enter(&self) {
        if self.inside.fetch_add(1, Ordering::SeqCst) != 0 {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
