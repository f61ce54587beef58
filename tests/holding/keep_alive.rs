//! `keep_alive` renews while the work runs, and stops the work when the lock is lost.

use crate::{BELIEVED, LEASE, Polled};
use lambda_lock::ErrorKind;
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, ends_within, secs};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn keep_alive_renews_while_the_work_runs_and_spawns_nothing() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();

    let answer = lock
        .keep_alive(async {
            sleep(secs(100)).await;
            42
        })
        .await
        .unwrap();

    assert_eq!(answer, 42);
    assert!(!lock.remaining().is_zero());
    let renewals = process.take_sent().len();
    assert!((14..=16).contains(&renewals), "a third of 20 s: {renewals} renewals in 100 s");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_continues_through_an_outage_that_is_shorter_than_the_lease() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next(vec![Fault::BlackHole; 6]);
    lock.keep_alive(sleep(secs(60))).await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keep_alive_stops_the_work_when_the_lock_is_lost_or_the_lease_runs_out() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut lock = acquired(&locks, LEASE).await;
    table.delete("k");
    let error = lock.keep_alive(Polled::new().work()).await.unwrap_err();
    assert!(error.is_lost(), "{error}");

    let mut lock = acquired(&locks, LEASE).await;
    process.next(vec![Fault::BlackHole; 100]);
    let started = Instant::now();
    let polled = Polled::new();

    let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert!(polled.last() <= started + BELIEVED, "{:?}", polled.last() - started);
    let _ = lock.save();
}

mod keep_alive_under_a_budget_ends_with_it {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn with_a_lease_that_covers_it() {
        check(None, 6).await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_short_lease_that_is_renewed() {
        check(Some(secs(5)), 30).await;
    }

    /// The lease covers the budget and is hardly renewed, or it is short and renewed often.
    async fn check(lease: Option<Duration>, requests: usize) {
        let table = Table::new();
        let process = table.process();
        let budget = process.budget(secs(30));
        let locks = process.locks("me");
        let acquire = locks.acquire("k").within(&budget);
        let acquire = if let Some(lease) = lease { acquire.lease(lease) } else { acquire };
        let mut lock = acquire.await.unwrap();
        process.take_sent();
        let started = Instant::now();

        let error = ends_within(secs(60), lock.keep_alive(std::future::pending::<()>())).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::OutOfTime, "{error}");
        // Thirty seconds, one second of grace, and the clock drift of the lease of the first write.
        let elapsed = started.elapsed() + ROUND_TRIP;
        assert!(elapsed >= secs(31) && elapsed <= secs(33), "{elapsed:?}");
        assert!(process.take_sent().len() <= requests);
        let _ = lock.save();
    }
}
