//! A call that gives up: its outcome is unknown, and it blocks no caller.

use crate::LEASE;
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, Table, acquired, millis, secs};
use std::error::Error as StdError;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_cleans_up_and_reports_unknown() {
    let table = Table::new();
    let process = table.process();
    // The first request is applied and its response is lost. Then only the last request arrives.
    process.next([Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]);

    let error = process.locks("me").acquire("k").lease(LEASE).try_once().await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem", "GetItem", "GetItem", "UpdateItem"]);
    assert!(table.is_released("k"), "nobody is blocked by what was given up");
    // The clean-up got a response, so it is not the cause. The cause is the fault before it.
    let cause = StdError::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("no response within"), "{cause}");

    acquired(&table.process().locks("next"), LEASE).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_frees_what_any_of_its_attempts_got_also_when_the_clock_was_set_back() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    process.next([Fault::ArrivesLate(millis(1_500)), Fault::None]);
    process.next([Fault::BlackHole, Fault::BlackHole]);
    let clock = process.clock.clone();
    let back = tokio::spawn(async move {
        sleep(millis(500)).await;
        clock.jump_wall(-1_800);
    });

    let error = locks.acquire("k").lease(secs(20)).try_once().await.unwrap_err();

    back.await.unwrap();
    assert!(error.is_unknown(), "{error}");
    assert!(table.is_released("k"), "{:?}", table.row("k"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_arrives_after_its_cleanup_is_refused() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    acquired(&two.locks("two"), LEASE).await.release().await.unwrap();
    sleep(secs(1)).await;
    // The Claim arrives six seconds late, after two other acquires and releases.
    one.next([Fault::ArrivesLate(secs(6)), Fault::BlackHole, Fault::BlackHole]);

    assert!(one.locks("one").acquire("k").lease(LEASE).try_once().await.unwrap_err().is_unknown());

    acquired(&two.locks("two"), LEASE).await.release().await.unwrap();
    sleep(secs(10)).await;
    assert!(table.attribute("k", "ownerName").unwrap().starts_with("two/"), "the late copy was refused");
}

#[tokio::test(start_paused = true)]
async fn attempts_are_paced_when_writes_fail_and_reads_succeed() {
    let table = Table::new();
    let process = table.process();
    for _ in 0..500 {
        process.next([Fault::Says(500, ""), Fault::None]);
    }
    let started = Instant::now();

    assert!(process.locks("me").acquire("k").lease(LEASE).try_once().await.unwrap_err().is_unknown());
    assert!(started.elapsed() >= secs(3), "{:?}", started.elapsed());
    let requests = process.take_sent().len();
    assert!(requests < 40, "{requests} requests in three seconds");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_and_a_release_of_which_nothing_gets_through_are_unknown_and_may_be_repeated() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    let token = lock.to_saved();
    process.take_sent();
    let started = Instant::now();
    process.next(vec![Fault::BlackHole; 9]);

    assert!(lock.checkpoint().await.unwrap_err().is_unknown());
    assert!(started.elapsed() <= secs(4), "{:?}", started.elapsed());
    assert!(!lock.remaining().is_zero(), "what the guard believed, it may go on believing");
    assert!(lock.release().await.unwrap_err().is_unknown());
    assert_eq!(process.take_sent().len(), 6);

    // A release can be repeated from the saved lock.
    process.take_sent();
    process.next(vec![]);
    sleep(secs(1)).await;
    let locks = table.process().locks("me");

    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::Released);
}
