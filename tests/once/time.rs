//! Clocks and pauses: how long a record counts, and how long a call waits.

use crate::LEASE;
use lambda_lock::once::Started;
use lambda_lock::{Budget, Clock, ErrorKind, Instants, Sleep};
use lambda_lock_testkit::{Fault, ManualClock, Table, granted, millis, secs};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Eight seconds pass before one reading of the clocks, and count from then on.
#[derive(Debug)]
struct JumpsAt {
    clock: ManualClock,
    at: u32,
    readings: AtomicU32,
    jumped: AtomicU64,
}

impl Clock for JumpsAt {
    fn now(&self) -> Instants {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        if reading == self.at {
            self.jumped.store(8, Ordering::Relaxed);
        }
        let mut now = self.clock.now();
        let more = secs(self.jumped.load(Ordering::Relaxed));
        now.monotonic += more;
        now.wall += more;
        now
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.clock.sleep(duration)
    }

    fn random(&self) -> [u8; 16] {
        self.clock.random()
    }
}

async fn waited_with_a_pause_at(at: u32, kind: &str) -> Duration {
    let table = Table::new();
    let holder = table.process().locks("holder");
    let held = granted(holder.acquire("k").lease(secs(300)).try_once()).await;
    let doing = holder.once("k").lease(secs(300)).start::<Value>().await.unwrap();
    let place = granted(holder.acquire("gateway/0").lease(secs(300)).try_once()).await;
    let process = table.process();
    process.set_date_offset(None);
    let clock =
        Arc::new(JumpsAt { clock: process.clock.clone(), at, readings: AtomicU32::new(0), jumped: AtomicU64::new(0) });
    let locks = process.builder().owner("me").clock(clock.clone()).build().unwrap();
    let budget = Budget::lasting_on(clock.clone(), secs(10)).reserve(secs(5));
    let started = Instant::now();
    let error = match kind {
        "once" => locks.once("k").within(&budget).start::<Value>().await.unwrap_err(),
        "acquire" => locks.acquire("k").within(&budget).await.unwrap_err(),
        "acquire_all" => locks.acquire_all(["k", "other"]).within(&budget).await.unwrap_err(),
        "in_order" => locks.acquire_all(["k", "other"]).within(&budget).in_order().await.unwrap_err(),
        _ => locks.semaphore("gateway", 1).acquire().within(&budget).await.unwrap_err(),
    };
    assert!(error.is_held() || error.kind() == ErrorKind::OutOfTime, "{error}");
    let _ = (held.save(), place.save(), doing);
    started.elapsed()
}

/// A process is paused for 8 s of its budget of 10 s before its first request. It may wait for 5 s, so it does not
/// wait any more.
#[tokio::test(start_paused = true)]
async fn a_pause_gives_a_call_no_more_time_to_wait() {
    let mut late = Vec::new();
    for at in 1..12 {
        for kind in ["once", "acquire", "acquire_all", "in_order", "semaphore"] {
            let waited = waited_with_a_pause_at(at, kind).await;
            if waited > millis(600) {
                late.push((at, kind, waited));
            }
        }
    }
    assert!(late.is_empty(), "{late:?}");
}

/// What was read from a deleted record does not apply to the next record.
#[tokio::test(start_paused = true)]
async fn a_claim_after_a_record_that_was_deleted_does_not_wipe_the_next_one() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let locks = one.locks("one");
    match locks.once("w").lease(LEASE).keep_for(secs(60)).start::<Value>().await.unwrap() {
        Started::Attempt(attempt) => attempt.complete(&1).await.unwrap(),
        Started::Replayed(_) => panic!("replayed"),
    }
    sleep(secs(100)).await;
    // One finds an expired record. TTL deletes the row before One's Take arrives, and the response to the Take is
    // slow. Meanwhile Two starts the work again, does half of it, stores a note and releases the work.
    one.next([Fault::None, Fault::SlowBothWays(millis(50), millis(500))]);
    let first = tokio::spawn(async move { locks.once("w").lease(LEASE).keep_for(secs(60)).start::<Value>().await });
    sleep(millis(20)).await;
    table.delete("once/w");
    sleep(millis(80)).await;
    let second = two.locks("two");
    match second.once("w").lease(LEASE).keep_for(secs(60)).start::<Value>().await.unwrap() {
        Started::Attempt(mut attempt) => {
            attempt.renew().data("half way").await.unwrap();
            attempt.give_back().await.unwrap();
        }
        Started::Replayed(_) => panic!("replayed"),
    }
    match first.await.unwrap().unwrap() {
        Started::Attempt(attempt) => {
            let seen = (attempt.number(), attempt.data().map(<[u8]>::to_vec));
            attempt.give_back().await.unwrap();
            assert_eq!(seen, (2, Some(b"half way".to_vec())), "the second attempt is told that it is the first");
        }
        Started::Replayed(_) => panic!("replayed"),
    }
}
