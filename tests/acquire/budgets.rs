//! The lease and the waiting follow the budget of the call.

use crate::LEASE;
use lambda_lock::{Budget, ErrorKind};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, millis, secs};
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn the_lease_follows_the_budget_and_checkpoints_do_not_push_it_past_the_end() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(60)).grace(secs(2));
    let begin = process.clock.wall_millis();

    let mut lock = process.locks("me").acquire("k").within(&budget).await.unwrap();
    // (60 + 2) × 1.05
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("65100"));
    let ends = table.attribute("k", "leaseEndsAt");
    assert_eq!(ends, Some((begin + 65_100).to_string()));
    assert_eq!(lock.remaining(), secs(62) - ROUND_TRIP);

    sleep(secs(40)).await;
    lock.checkpoint().await.unwrap();
    assert_eq!(table.attribute("k", "leaseEndsAt"), ends, "neither later nor earlier");
    assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("65100"), "never shortened");
    // The guard relies on the earlier of its two ends.
    assert!(lock.remaining() <= millis(25_100), "{:?}", lock.remaining());
    lock.release().await.unwrap();
}

/// A lock with its own lease is renewed up to the end of the budget and its grace, for a function that is
/// killed late. It is not renewed further.
mod a_renewal_within_a_budget_covers_its_grace_and_nothing_after_it {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn by_a_checkpoint() {
        check("checkpoint").await;
    }

    #[tokio::test(start_paused = true)]
    async fn by_renew() {
        check("renew").await;
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_commit() {
        check("commit").await;
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_resume() {
        check("resume").await;
    }

    async fn check(renewed_by: &str) {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let deadline = process.clock.wall_millis() + 60_000;
        let budget = process.budget(secs(60)).grace(secs(2));
        let mut lock = locks.acquire("k").within(&budget).lease(LEASE).await.unwrap();
        let ends = || table.attribute("k", "leaseEndsAt").unwrap().parse::<u64>().unwrap();
        // Before, during and after the last lease of the budget.
        for seconds in [5, 45, 10, 1, 5] {
            sleep(secs(seconds)).await;
            let now = process.clock.wall_millis();
            let lease = secs(if renewed_by == "renew" { 30 } else { 20 });

            lock = match renewed_by {
                "checkpoint" => lock.checkpoint().await.map(|()| lock),
                "renew" => lock.renew().lease(lease).await.map(|()| lock),
                "commit" => lock.commit([]).await.map(|()| lock),
                _ => locks.resume(lock.save()).within(&budget).await,
            }
            .unwrap();

            let covered = (deadline + 2_000).max(now);
            let expected = match renewed_by {
                // A resume covers the rest of the budget.
                "resume" => covered,
                _ => covered.min(now + lease.as_millis() as u64),
            };
            assert_eq!(ends(), expected, "{renewed_by} at {}", now as i64 - deadline as i64);
        }
        let _ = lock.save();
    }
}

/// A frozen sandbox stops the monotonic clock, and a wall clock may be set back. Neither makes the budget
/// longer.
mod a_budget_counts_by_the_clock_that_shows_less_time_left {
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
        let process = table.process();
        process.set_date_offset(None);
        let locks = process.locks("me");
        let budget = process.budget(secs(60)).grace(secs(2)).reserve(secs(30));

        if frozen {
            process.clock.freeze(secs(20)).await;
        } else {
            sleep(secs(20)).await;
            process.clock.jump_wall(-3_600_000);
        }
        assert_eq!(budget.remaining(), Some(secs(40)));

        let lock = locks.acquire("k").within(&budget).await.unwrap();
        // (40 + 2) × 1.05
        assert_eq!(table.attribute("k", "leaseDuration").as_deref(), Some("44100"));

        // Ten seconds are left to wait.
        let started = Instant::now();

        assert!(process.locks("other").acquire("k").within(&budget).await.unwrap_err().is_held());
        assert!(started.elapsed() < secs(10) + 2 * ROUND_TRIP, "{:?}", started.elapsed());
        lock.release().await.unwrap();

        sleep(secs(31)).await;
        let error = locks.acquire("k").within(&budget).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfTime, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_budget_is_below_its_reserve_tries_once() {
    let table = Table::new();
    let holder = acquired(&table.process().locks("holder"), LEASE).await;
    let process = table.process();
    let budget = process.budget(secs(10)).reserve(secs(10));
    let locks = process.locks("me");

    let started = Instant::now();
    assert!(locks.acquire("k").within(&budget).await.unwrap_err().is_held());
    assert_eq!(started.elapsed(), ROUND_TRIP, "one request");

    holder.release().await.unwrap();
    locks.acquire("k").within(&budget).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_is_refused_without_a_request() {
    let table = Table::new();
    let process = table.process();
    let budget = process.budget(secs(1));

    sleep(secs(2)).await;

    for error in [
        process.locks("me").acquire("k").within(&budget).await.unwrap_err(),
        process.locks("me").acquire("k").within(&budget).try_once().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OutOfTime, "{error}");
    }
    assert!(process.take_sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_request_is_waited_for_much_longer_than_the_time_of_its_call() {
    let table = Table::new();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(millis(1_200)));
    process.next(vec![Fault::BlackHole; 10]);
    let started = Instant::now();

    let error = locks.acquire("k").within(&budget).try_once().await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    // The clean-up and the request before it have 250 ms each.
    assert!(started.elapsed() <= millis(1_700), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_budget_on_another_clock_is_counted_by_the_clients_clock_once_a_call_has_it() {
    let table = Table::new();
    let process = table.process();
    // This budget is on the system's clocks, which stand still while those of the process run.
    let budget = Budget::lasting(secs(30));
    let mut lock = process.locks("me").acquire("k").within(&budget).lease(secs(40)).await.unwrap();
    sleep(secs(25)).await;

    lock.checkpoint().await.unwrap();

    assert!(lock.remaining() <= secs(15), "renewed beyond the budget's end and grace: {:?}", lock.remaining());
    assert!(budget.remaining().unwrap() > secs(25), "whoever asks the budget itself is answered by its own clock");
    lock.release().await.unwrap();
}
