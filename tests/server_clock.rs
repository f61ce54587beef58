//! The server's clock: what one wrong `Date` header, or somebody else's, may change.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use lambda_lock_testkit::{Fault, Table};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(20);
const HOUR: i64 = 3600;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn wrong_dates_do_not_make_a_living_holder_look_dead() {
    for wrong in 1..=4 {
        for off in [-HOUR, HOUR] {
            let table = Table::new();
            let (one, two) = (table.process(), table.process());
            let locks = one.locks("one");
            one.next(vec![Fault::DateOff(off); wrong]);
            for _ in 0..wrong {
                locks.peek("another").await.unwrap();
            }

            let now = one.clock.wall_millis();
            one.take_sent();
            let lock = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();
            assert_eq!(one.take_operations(), ["UpdateItem"], "its end is right from its first write on");

            let tried = two.locks("two").try_acquire("k").lease(LEASE).await.unwrap();
            assert!(tried.granted().is_none(), "granted to two holders after {wrong} dates that were {off} s off");
            assert!(!lock.remaining().is_zero());
            let ends: u64 = table.attribute("k", "leaseEndsAt").unwrap().parse().unwrap();
            assert!(ends >= now + 20_000, "{wrong} dates, {off} s off");
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_date_that_is_not_dynamodbs_own_counts_nothing() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = one.locks("one").try_acquire("k").lease(secs(3)).await.unwrap().granted().unwrap();
    let _ = lock.into_token();
    tokio::time::sleep(secs(10)).await;
    // Something in between answers by itself, with a clock of its own.
    two.next(vec![Fault::Foreign(503, HOUR); 100]);
    let locks = two.locks("two");
    assert!(locks.peek("another").await.unwrap_err().is_unknown());
    two.clear();
    two.take_sent();

    let lock = locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap();

    assert_eq!(two.take_operations(), ["UpdateItem"], "the wall clock is trusted: one request takes over");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_wrong_date_does_not_cost_the_takeover_by_wall_clock_for_good() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let lock = one.locks("one").try_acquire("k").lease(secs(3)).await.unwrap().granted().unwrap();
    let _ = lock.into_token();
    tokio::time::sleep(secs(10)).await;
    let locks = two.locks("two");
    two.next([Fault::DateOff(HOUR)]);
    locks.peek("another").await.unwrap();
    locks.peek("another").await.unwrap();

    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap().release().await.unwrap();
}
