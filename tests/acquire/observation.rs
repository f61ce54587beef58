//! Takeover by observation: the holder is dead when its version was unchanged for a whole lease.

use crate::{LEASE, refused};
use lambda_lock::{LockClient, Observation, Tried};
use lambda_lock_testkit::{ROUND_TRIP, Table, case, millis, secs};
use std::time::Duration;
use tokio::time::{Instant, sleep};

async fn is_granted(locks: &LockClient, seen: Observation) -> bool {
    match locks.acquire("k").lease(LEASE).observation(seen).try_once().await.unwrap() {
        Tried::Granted(lock) => {
            let _ = lock.save();
            true
        }
        Tried::Refused(_) => false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_takes_over_by_observation_with_one_claim_and_one_take_beside_its_polls() {
    let table = Table::new();
    let two = table.process();
    table.put_java_row("k", "v1", secs(3));

    let lock = two.locks("two").acquire("k").within(&two.budget(secs(60))).await.unwrap();

    let counts = two.take_counts();
    assert_eq!(counts["UpdateItem"], 2, "{counts:?}");
    assert!(counts["GetItem"] <= 24, "{counts:?}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_version_restarts_the_observation() {
    let table = Table::new();
    let two = table.process();
    table.put_java_row("k", "v1", secs(10));
    let locks = two.locks("two");
    let budget = two.budget(secs(200));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    sleep(secs(9)).await;
    table.put_java_row("k", "v2", secs(10));

    sleep(secs(9)).await;

    assert!(!waiter.is_finished(), "18 s of two versions are no 10 s of one");

    sleep(secs(3)).await;
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_carried_observation_survives_a_process_restart() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let mut carried: Option<String> = None;
    for call in 0.. {
        // Each call is a new process. Only the observation is passed on.
        let process = table.process();
        let locks = process.locks("two");
        let mut acquire = locks.acquire("k");
        if let Some(text) = carried.take() {
            acquire = acquire.observation(serde_json::from_str::<Observation>(&text).unwrap());
        }
        let budget = process.budget(secs(5)).reserve(Duration::ZERO);
        match acquire.within(&budget).await {
            Ok(lock) => {
                // 21 s of observation, in calls of 5 s each.
                assert_eq!(call, 4);
                return lock.release().await.map(drop).unwrap();
            }
            Err(error) => carried = Some(serde_json::to_string(&error.refusal().unwrap().observation).unwrap()),
        }
        // Time between the calls does not count without the caller's word.
        sleep(secs(1000)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn time_between_calls_counts_only_if_the_caller_adds_it() {
    let table = Table::new();
    table.put_java_row("k", "v1", LEASE);
    let locks = table.process().locks("two");
    let seen = refused(&locks).await;

    sleep(secs(100)).await;

    assert!(!is_granted(&locks, seen.clone()).await);
    assert!(!is_granted(&locks, seen.clone().and_waited(millis(20_999))).await);
    assert!(is_granted(&locks, seen.and_waited(secs(21))).await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_takes_over_as_soon_as_the_holder_is_proven_dead() {
    // Many lengths, so that the lease ends at different times of a pause.
    for number in 0..25 {
        let lease = millis(3000 + 37 * number);
        let _case = case(format!("{lease:?}"));
        let table = Table::new();
        let two = table.process();
        table.put_java_row("k", "v1", lease);
        let started = Instant::now();

        let lock = two.locks("two").acquire("k").within(&two.budget(secs(60))).await.unwrap();

        let proven = ROUND_TRIP + lease * 105 / 100;
        // The jitter, a read in flight, and the request itself.
        let latest = proven + millis(20) + 2 * ROUND_TRIP + millis(2);
        assert!(started.elapsed() >= proven && started.elapsed() <= latest, "{:?}", started.elapsed());
        lock.release().await.unwrap();
    }
}

mod a_contender_counts_by_the_slower_of_its_clocks {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frozen() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn set_ahead() {
        check(false).await;
    }

    async fn check(freeze: bool) {
        let table = Table::new();
        table.put_java_row("k", "v1", secs(10));
        let process = table.process();
        let locks = process.locks("two");
        let budget = process.budget(secs(300)).reserve(Duration::ZERO);
        let started = Instant::now();
        let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
        sleep(secs(5)).await;
        if freeze {
            // The monotonic clock stands still for 8 s.
            process.clock.freeze(secs(8)).await;
        } else {
            process.clock.jump_wall(60_000);
        }

        waiter.await.unwrap().unwrap().release().await.unwrap();

        let least = millis(10_500) + if freeze { secs(8) } else { Duration::ZERO };
        assert!(started.elapsed() >= least, "{:?}", started.elapsed());
    }
}
