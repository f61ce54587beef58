//! Work with `keep_alive` is not polled after the end of its lease, whoever polls it.

use crate::{Polled, SHORT_BELIEVED, SHORT_LEASE};
use lambda_lock::{Error, ErrorKind, Lock, LockSet};
use lambda_lock_testkit::{Fault, Process, Table, acquired, case, granted, millis, secs};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Lets no request arrive from now on.
fn goes_dark(process: &Process) {
    process.next(vec![Fault::BlackHole; 1000]);
}

/// Changes the row so that its lease ended long ago, as when a process was frozen.
async fn two_lets_the_lease_pass(table: &Table) {
    let ends = table.number("k", "leaseEndsAt");
    table.set("k", serde_json::json!({"leaseEndsAt": {"N": (ends - 60_000).to_string()}}));
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_stands_still_when_its_lease_ends_while_a_renewal_is_pending() {
    for timeout in [millis(300), secs(1), secs(5)] {
        let _case = case(format!("{timeout:?}"));
        let table = Table::new();
        let (one, two) = (table.process(), table.process());
        let locks = one.builder().request_timeout(timeout).build().unwrap();
        let mut lock = acquired(&locks, SHORT_LEASE).await;
        let granted = Instant::now();
        goes_dark(&one);
        let polled = Polled::new();

        let next = tokio::spawn(async move {
            let locks = two.locks("two");
            let lock = locks.acquire("k").within(&two.budget(secs(60))).await.unwrap();
            let at = Instant::now();
            lock.release().await.unwrap();
            at
        });
        let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();

        assert!(error.is_unknown(), "{error}");
        assert!(polled.last() <= granted + SHORT_BELIEVED, "{:?} after its grant", polled.last() - granted);
        assert!(polled.last() > granted + SHORT_BELIEVED - millis(20), "as long as the lock is ours it runs");
        assert!(polled.last() < next.await.unwrap(), "beside the next holder");
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_is_not_polled_by_a_thawed_process_whose_lease_has_ended() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), SHORT_LEASE).await;
    let polled = Polled::new();
    let work = polled.clone().work();
    let thawed = Arc::new(Mutex::new(None));
    let thaw = {
        let (one, thawed) = (one.clone(), thawed.clone());
        tokio::spawn(async move {
            sleep(millis(100)).await;
            // The wall clock has continued, but no timer has.
            one.clock.jump_wall(60_000);
            goes_dark(&one);
            *thawed.lock().unwrap() = Some(Instant::now());
            let lock = acquired(&two.locks("two"), SHORT_LEASE).await;
            let _ = lock.save();
        })
    };
    two_lets_the_lease_pass(&table).await;

    let error = lock.keep_alive(work).await.unwrap_err();

    thaw.await.ok();
    let thawed = thawed.lock().unwrap().unwrap();
    assert!(polled.last() <= thawed, "polled {:?} after the thaw: {error}", polled.last() - thawed);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_continues_after_a_freeze_if_no_other_caller_was_granted_the_lock() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), SHORT_LEASE).await;
    let clock = process.clock.clone();
    let work = async move {
        sleep(millis(100)).await;
        clock.jump_wall(60_000);
        sleep(secs(10)).await;
        7
    };

    assert_eq!(lock.keep_alive(work).await.unwrap(), 7);

    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_outlives_a_renewal_that_fails_with_most_of_the_lease_left() {
    for code in ["ExpiredTokenException", "AccessDeniedException", "ValidationException", "ResourceNotFoundException"] {
        let _case = case(code);
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me"), SHORT_LEASE).await;
        process.next([Fault::error(code)]);

        lock.keep_alive(sleep(secs(10))).await.unwrap();

        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_ends_with_its_lease_when_every_renewal_is_denied() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), SHORT_LEASE).await;
    process.next(vec![Fault::error("ExpiredTokenException"); 100]);
    let (polled, granted) = (Polled::new(), Instant::now());

    let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(polled.last() <= granted + SHORT_BELIEVED);
    assert!(process.take_sent().len() < 30, "it does not hurry");
    let _ = lock.save();
}

mod a_lease_that_was_seen_to_have_ended_does_not_come_back_with_a_clock_that_is_set_back {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn seen_before_the_work_began() {
        check(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn seen_during_the_work() {
        check(false).await;
    }

    async fn check(seen_before: bool) {
        let table = Table::new();
        let process = table.process();
        let locks = process.builder().request_timeout(secs(1)).build().unwrap();
        let mut lock = acquired(&locks, SHORT_LEASE).await;
        let (polled, clock) = (Polled::new(), process.clock.clone());
        goes_dark(&process);
        if seen_before {
            clock.jump_wall(60_000);
            assert!(lock.remaining().is_zero());
            clock.jump_wall(-60_000);
        }
        let ended = Instant::now() + millis(if seen_before { 0 } else { 100 });
        let jumps = tokio::spawn(async move {
            if !seen_before {
                sleep(millis(95)).await;
                clock.jump_wall(60_000);
                sleep(millis(100)).await;
                clock.jump_wall(-60_000);
            }
        });

        let error = lock.keep_alive(polled.clone().work()).await.unwrap_err();

        jumps.await.unwrap();
        assert!(error.is_unknown(), "{error}");
        assert!(polled.last() <= ended, "polled {:?} after the end was seen", polled.last() - ended);
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_that_fail_are_tried_again_well_before_the_end_of_the_lease() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), SHORT_LEASE).await;
    process.next([(); 3].map(|()| Fault::error("ExpiredTokenException")));

    assert!(lock.keep_alive(sleep(secs(3))).await.is_ok());
    lock.release().await.unwrap();
}

/// A guard of one lock or of two.
enum Guard {
    One(Lock),
    Two(LockSet),
}

impl Guard {
    async fn keep_alive<F: Future>(&mut self, work: F) -> Result<F::Output, Error> {
        match self {
            Guard::One(lock) => lock.keep_alive(work).await,
            Guard::Two(set) => set.keep_alive(work).await,
        }
    }
}

/// Holds `k`, alone or with another lock, in a process whose requests take 200 ms, and their responses too. Its first renewal is
/// sent 1.9 s after that. It is frozen at this point for longer than its lease.
async fn frozen(
    table: &Table,
    is_set: bool,
    at: Duration,
    work: impl Future,
    before: impl Future<Output = ()>,
) -> Result<(), Error> {
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(300)));
    let mut guard = if is_set {
        Guard::Two(locks.acquire_all(["k", "l"]).lease(secs(6)).within(&budget).await.unwrap())
    } else {
        Guard::One(locks.acquire("k").lease(secs(6)).within(&budget).await.unwrap())
    };
    process.next(vec![Fault::SlowBothWays(millis(200), millis(200)); 60]);
    let kept = tokio::join!(guard.keep_alive(work), async {
        sleep(at).await;
        before.await;
        tokio::time::advance(secs(8)).await;
    });
    kept.0.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_continues_after_a_freeze_that_a_renewal_was_on_its_way_in() {
    for (is_set, at) in
        [false, true].into_iter().flat_map(|is_set| (0..16).map(move |at| (is_set, millis(1_850 + 40 * at))))
    {
        let _case = case(format!("a set: {is_set}, frozen after {at:?}"));
        frozen(&Table::new(), is_set, at, sleep(secs(15)), async {}).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_kept_alive_does_not_continue_after_such_a_freeze_beside_another_holder() {
    for (is_set, at) in
        [false, true].into_iter().flat_map(|is_set| (0..16).map(move |at| (is_set, millis(1_850 + 40 * at))))
    {
        let _case = case(format!("a set: {is_set}, frozen after {at:?}"));
        let (table, polled) = (Table::new(), Polled::new());
        let other = table.process().locks("other");
        let taken = Arc::new(Mutex::new(None));
        let theft = async {
            let seen = other.operator().peek("k").await.unwrap().unwrap();
            other.operator().break_lock("k", &seen, "test").await.unwrap();
            granted(other.acquire("k").lease(secs(60)).try_once()).await.save();
            *taken.lock().unwrap() = Some(Instant::now());
        };

        let error = frozen(&table, is_set, at, polled.clone().work(), theft).await.unwrap_err();

        assert!(error.is_lost(), "{error}");
        assert!(polled.last() <= taken.lock().unwrap().unwrap(), "polled beside the next holder");
    }
}
