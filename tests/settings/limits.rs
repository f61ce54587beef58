//! Settings at their limits are refused with a message, or work.

use lambda_lock::ErrorKind;
use lambda_lock_testkit::{Table, case, granted, secs};
use std::time::Duration;

const DAY: Duration = secs(86_400);

#[tokio::test(start_paused = true)]
async fn a_request_timeout_longer_than_any_function_runs_is_refused() {
    let process = Table::new().process();

    for timeout in [Duration::MAX, DAY] {
        let _case = case(format!("{timeout:?}"));
        let error = process.builder().request_timeout(timeout).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }

    process.builder().request_timeout(secs(900)).build().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_under_the_longest_budget_can_be_renewed() {
    for days in [366, 367, 100_000] {
        let _case = case(format!("{days} days"));
        let table = Table::new();
        let process = table.process();
        let (locks, budget) = (process.locks("me"), process.budget(DAY * days));

        let mut lock = granted(locks.acquire("k").within(&budget).try_once()).await;
        lock.checkpoint().await.unwrap();
        let token = lock.save();
        let lock = locks.resume(token).within(&budget).await.unwrap();

        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_resumed_under_the_longest_budget_can_be_resumed_again() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(DAY * 367));
    let lock = granted(locks.acquire("k").lease(DAY).try_once()).await;

    let lock = locks.resume(lock.save()).within(&budget).await.unwrap();
    let lock = locks.resume(lock.save()).within(&budget).await.unwrap();

    assert_eq!(table.number("k", "leaseDuration"), 366 * 86_400_000);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_duration_is_too_long_for_a_call() {
    let table = Table::new();
    let process = table.process();
    let locks = process
        .builder()
        .max_clock_skew(Duration::MAX)
        .ttl_attribute("expiresAt")
        .ttl_retention(Duration::MAX)
        .clock_drift(1.0)
        .build()
        .unwrap();
    let budget = process.budget(Duration::MAX).grace(Duration::MAX).reserve(Duration::MAX);

    let mut lock = locks.acquire("k").within(&budget).await.unwrap();
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();

    let expires = table.number("k", "expiresAt");
    assert_eq!(expires, u64::MAX, "a retention without end is not cut to one of nothing");
}

#[tokio::test(start_paused = true)]
async fn each_acquire_has_its_own_default_owner() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("orders");
    let one = granted(locks.acquire("a").lease(DAY).try_once()).await;
    let two = granted(locks.acquire("b").lease(DAY).try_once()).await;
    let budget = process.budget(DAY).owner("orders:7/request");
    let three = granted(locks.acquire("c").within(&budget).try_once()).await;
    let four = granted(locks.acquire("d").lease(DAY).owner("named").try_once()).await;

    assert_ne!(one.owner(), two.owner());
    assert!(one.owner().starts_with("orders/") && two.owner().starts_with("orders/"));
    assert!(three.owner().starts_with("orders:7/request/"));
    assert_eq!(four.owner(), "named");

    for lock in [one, two, three, four] {
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn reclaiming_an_own_lock_needs_an_owner() {
    let process = Table::new().process();

    let error = process.locks("me").acquire("k").lease(DAY).reclaim_own().try_once().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains(".owner("), "{error}");
    assert!(process.take_sent().is_empty());
}

/// An acquire takes one request, whatever the clock drift is.
#[tokio::test(start_paused = true)]
async fn an_acquire_takes_one_request_with_the_largest_drift_too() {
    for drift in [0.05, 0.5, 0.9, 1.0] {
        let table = Table::new();
        let process = table.process();
        let locks = process.builder().clock_drift(drift).build().unwrap();
        let lock = granted(locks.acquire("k").lease(secs(21)).try_once()).await;
        assert_eq!(process.take_operations(), ["UpdateItem"], "drift {drift}");
        lock.release().await.unwrap();
    }
}
