//! Takeover: the lock of a dead holder is taken over, and that of a living holder never.

use crate::{LEASE, die_holding};
use lambda_lock::LockClient;
use lambda_lock_testkit::{Process, ROUND_TRIP, Table, acquired, millis, secs};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn without_wall_clock(process: &Process) -> LockClient {
    process.builder().owner("watcher").without_wall_clock_takeover().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_of_ours_is_taken_over_in_one_request_after_its_end_and_the_skew() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = die_holding(&one.locks("one"), LEASE).await;

    let locks = two.locks("two");
    // The wall clock of the moment before the request counts.
    sleep(secs(22) - ROUND_TRIP).await;
    let early = table.process();
    early.set_latency(Duration::ZERO);

    let tried = early.locks("early").acquire("k").lease(LEASE).try_once().await.unwrap();
    assert!(tried.granted().is_none(), "not one millisecond early");

    sleep(millis(1)).await;
    two.take_sent();

    let lock = acquired(&locks, LEASE).await;
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.fencing_token(), token + 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lock_is_never_taken_and_an_abandoned_one_is() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), secs(5)).await;
    let locks = without_wall_clock(&two);
    let budget = two.budget(secs(400));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    for _ in 0..40 {
        sleep(secs(4)).await;
        assert!(!waiter.is_finished());
        lock.checkpoint().await.unwrap();
    }
    let abandoned = Instant::now();
    let _ = lock.save();

    let lock = waiter.await.unwrap().unwrap();

    // A whole lease and the clock drift after the last renewal, then one poll and its jitter.
    let (least, most) = (millis(5_250), millis(5_250 + 250 + 25));
    assert!(abandoned.elapsed() >= least && abandoned.elapsed() <= most, "{:?}", abandoned.elapsed());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_wall_clock_takeover_a_dead_holder_of_ours_must_be_observed_too() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    die_holding(&one.locks("one"), secs(3)).await;
    sleep(secs(1000)).await;
    let locks = without_wall_clock(&two);

    assert!(locks.acquire("k").lease(LEASE).try_once().await.unwrap().granted().is_none());

    let started = Instant::now();
    let lock = locks.acquire("k").within(&two.budget(secs(60))).await.unwrap();
    assert!(started.elapsed() >= millis(3_150), "{:?}", started.elapsed());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_peers_lock_is_left_alone_whatever_stale_attributes_of_ours_it_carries() {
    let table = Table::new();
    // Go copies our attributes when it writes a row.
    table.put_java_row("k", "v1", LEASE);
    table.set("k", json!({"leaseEndsAt": {"N": "5"}, "fencingToken": {"N": "7"}}));
    let locks = table.process().locks("two");

    assert!(locks.acquire("k").lease(LEASE).try_once().await.unwrap().granted().is_none());
}
