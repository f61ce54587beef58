//! Which calls may be repeated.

use crate::LEASE;
use lambda_lock::{Lock, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Table, acquired, applied, counted, granted};

/// All requests of a call are applied, and all responses are lost.
fn unheard() -> impl Iterator<Item = Fault> {
    std::iter::repeat_n(Fault::NeverAnswers, 20)
}

#[tokio::test(start_paused = true)]
async fn acquire_renew_and_release_may_be_repeated_after_an_unknown_outcome() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    process.next(unheard());

    let error = locks.acquire("k").lease(LEASE).owner("one task").reclaim_own().try_once().await.unwrap_err();
    assert!(error.is_unknown(), "{error:?}");
    process.clear();

    let mut lock = granted(locks.acquire("k").lease(LEASE).owner("one task").reclaim_own().try_once()).await;
    process.next(unheard());

    assert!(lock.checkpoint().await.unwrap_err().is_unknown());
    process.clear();

    lock.checkpoint().await.unwrap();
    let token = lock.save();
    process.next(unheard());

    assert!(locks.release(token.clone()).await.unwrap_err().is_unknown());
    process.clear();
    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_not_safe_to_repeat_by_the_next_invocation() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let mut lock = acquired(&locks, LEASE).await;
    process.next(unheard());

    assert!(lock.commit([counted("effect")]).await.unwrap_err().is_unknown());
    process.clear();
    lock.release().await.unwrap();

    // The next invocation does not know of the first commit, and commits the same writes.
    let mut lock = acquired(&locks, LEASE).await;
    lock.commit([counted("effect")]).await.unwrap();

    lock.release().await.unwrap();
    assert_eq!(applied(&table, "effect"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_twice_does_its_work_twice_under_a_lock() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    for _ in 0..2 {
        let budget = process.budget(LEASE);
        let work = async |lock: &mut Lock| lock.commit([counted("effect")]).await;
        locks.with_lock("order-42", &budget, work).await.unwrap();
    }

    assert_eq!(applied(&table, "effect"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_redriven_after_the_clean_up_has_no_lock_any_more() {
    let table = Table::new();
    let locks = table.process().locks("arn/0");

    let token = granted(locks.acquire("k").lease(LEASE).workflow("arn").try_once()).await.save();

    assert_eq!(locks.release_workflow("k", "arn").await.unwrap(), ReleaseOutcome::Released);
    assert!(locks.resume(token).await.unwrap_err().is_lost());
}
