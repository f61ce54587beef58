//! Waiting for a lock: how long, and with which result.

use crate::LEASE;
use lambda_lock::ErrorKind;
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, case, millis, secs};
use serde_json::json;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn waiting_ends_where_the_reserve_begins_and_never_before() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), secs(6000)).await;

    // Many lengths, so that the time ends at different times of a pause.
    for number in 0..25 {
        let wait = millis(4000 + 37 * number);
        let _case = case(format!("{wait:?}"));
        let started = Instant::now();
        let budget = two.budget(wait + secs(12)).reserve(secs(12));

        let error = two.locks("two").acquire("k").within(&budget).await.unwrap_err();

        assert!(error.is_held(), "{error}");
        // One last read, which may be in flight, and the write that says that it gives up.
        let latest = wait + ROUND_TRIP * 2 + millis(1);
        assert!(started.elapsed() >= wait && started.elapsed() <= latest, "{:?}", started.elapsed());
    }
    lock.release().await.unwrap();
}

mod waiting_ends_in_time_also_for_a_process_that_is_frozen_or_whose_clock_is_set_back_meanwhile {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frozen() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn set_back() {
        check(false).await;
    }

    async fn check(frozen: bool) {
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let lock = acquired(&one.locks("one"), secs(6000)).await;
        two.set_date_offset(None);
        let clock = two.clock.clone();
        let disturbed = tokio::spawn(async move {
            sleep(secs(1)).await;
            if frozen {
                clock.freeze(secs(6)).await;
            } else {
                clock.jump_wall(-3_600_000);
            }
        });
        let started = Instant::now();
        let budget = two.budget(secs(30)).reserve(secs(20));

        let error = two.locks("two").acquire("k").within(&budget).await.unwrap_err();

        assert!(error.is_held(), "{error}");
        let latest = secs(10) + ROUND_TRIP * 2 + millis(1);
        assert!(started.elapsed() >= secs(10) && started.elapsed() <= latest, "{:?}", started.elapsed());

        disturbed.await.unwrap();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_soon_after_it_was_released() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = acquired(&one.locks("one"), secs(600)).await;
    let (locks, budget) = (two.locks("two"), two.budget(secs(60)));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    sleep(secs(10)).await;
    let token = lock.fencing_token();
    lock.release().await.unwrap();
    let released = Instant::now();

    let lock = waiter.await.unwrap().unwrap();

    // The longest pause of the first in line, a look and the grant.
    assert!(released.elapsed() <= millis(250) + ROUND_TRIP * 2, "{:?}", released.elapsed());
    assert_eq!(lock.fencing_token(), token + 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_a_free_lock_with_one_write_although_another_held_it_since_the_read() {
    let table = Table::new();
    let (one, two, three) = (table.process(), table.process(), table.process());
    let lock = acquired(&one.locks("one"), LEASE).await;
    // The Claim is refused. The read finds the lock free, but its response takes long.
    two.next([Fault::None, Fault::SlowBothWays(millis(50), millis(300))]);
    let (locks, budget) = (two.locks("two"), two.budget(secs(60)));
    let waiter = tokio::spawn(async move { locks.acquire("k").within(&budget).await });
    sleep(ROUND_TRIP).await;
    lock.release().await.unwrap();
    sleep(millis(150)).await;
    acquired(&three.locks("three"), LEASE).await.release().await.unwrap();
    assert_eq!(two.sent().len(), 2, "and it has not heard of it yet");

    let lock = waiter.await.unwrap().unwrap();

    assert_eq!(two.take_operations(), ["UpdateItem", "GetItem", "UpdateItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_its_time_although_a_rival_is_always_faster() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let locks = one.locks("rival");
    acquired(&locks, LEASE).await.release().await.unwrap();
    // Each of our requests finds another row that was released in the future.
    two.set_latency(millis(4));
    let rival = tokio::spawn({
        let table = table.clone();
        async move {
            for turn in 0_u64.. {
                let version = format!("ll1-{turn:032x}-0199d6a4c800{turn:016x}");
                table.set("k", json!({"recordVersionNumber": {"S": version}, "leaseEndsAt": {"N": "1900000000000"}}));
                sleep(millis(1)).await;
            }
        }
    });
    let started = Instant::now();

    let error = two.locks("me").acquire("k").within(&two.budget(millis(200))).await.unwrap_err();

    rival.abort();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(started.elapsed() <= millis(260), "{:?}", started.elapsed());
    assert!(two.take_sent().len() < 30);
}
