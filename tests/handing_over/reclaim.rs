//! Reclaiming: a new grant for the same owner, which fences off the earlier one.

use crate::LEASE;
use lambda_lock::LockClient;
use lambda_lock_testkit::{Fault, Table, acquired, granted, secs};
use tokio::time::sleep;

fn throttled() -> Vec<Fault> {
    vec![Fault::throttled(); 200]
}

#[tokio::test(start_paused = true)]
async fn a_reclaimed_lock_fences_off_the_earlier_copies() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    let token = lock.to_saved();

    let mut reclaimed = two.locks("two").reclaim(token.clone()).lease(LEASE).await.unwrap();
    assert_eq!(two.take_operations(), ["UpdateItem"]);
    assert_eq!(reclaimed.fencing_token(), lock.fencing_token() + 1);
    assert!(reclaimed.owner().starts_with("one/"), "the owner goes with the token");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());

    // The owner counts too. A second reclaim of the old saved lock gets the newer grant.
    let again = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();
    assert!(reclaimed.checkpoint().await.unwrap_err().is_lost());
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_renewed_since_its_token_was_written_is_reclaimed_with_two_requests() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    let token = lock.to_saved();
    lock.checkpoint().await.unwrap();

    let reclaimed = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();

    assert_eq!(two.take_operations(), ["UpdateItem", "UpdateItem"]);
    reclaimed.release().await.unwrap();
    let _ = lock.save();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_another_caller_was_granted_cannot_be_reclaimed() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = acquired(&one.locks("one"), LEASE).await.save();
    sleep(secs(30)).await;
    let other = acquired(&two.locks("two"), LEASE).await;
    let locks = one.locks("one");

    assert!(locks.reclaim(token.clone()).lease(LEASE).await.unwrap_err().is_lost());
    other.release().await.unwrap();
    assert!(locks.reclaim(token.clone()).lease(LEASE).await.unwrap_err().is_lost(), "nor after that one's release");

    table.delete("k");
    assert!(locks.reclaim(token).lease(LEASE).await.unwrap_err().is_lost(), "nor when nobody knows");
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_whose_answer_was_lost_is_recognised() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = acquired(&one.locks("one"), LEASE).await.save();
    two.next([Fault::AnswerLost]);

    let lock = two.locks("two").reclaim(token).lease(LEASE).await.unwrap();

    assert_eq!(two.take_operations(), ["UpdateItem", "GetItem"]);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_never_says_lost_while_the_lock_is_the_callers() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    let token = lock.to_saved();
    lock.checkpoint().await.unwrap();
    // The first Take is refused because of the renewed version. The second one is throttled until the time
    // is over.
    two.next([Fault::None]);
    two.next(throttled());

    let error = two.locks("two").reclaim(token).lease(LEASE).await.unwrap_err();

    assert!(error.is_unavailable(), "{error}");

    two.clear();
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_reclaims_its_own_lock_never_gets_held_by_itself() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let acquire =
        |locks: LockClient| async move { locks.try_acquire("k").lease(LEASE).owner("step-1").reclaim_own().await };
    let lock = granted(acquire(one.locks("one"))).await;
    // The Claim is refused because of the caller's own row. The Take is throttled until the time is over.
    two.next([Fault::None]);
    two.next(throttled());

    let error = acquire(two.locks("two")).await.unwrap_err();

    assert!(error.is_unavailable(), "{error}");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reclaim_does_not_take_the_live_lock_of_another_task_of_the_same_client() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("service");
    let a = acquired(&locks, secs(3)).await.save();
    sleep(secs(60)).await;
    let mut b = acquired(&locks, LEASE).await;

    let error = locks.reclaim(a).lease(LEASE).await.unwrap_err();

    assert!(error.is_lost(), "{error}");

    b.checkpoint().await.unwrap();
    b.release().await.unwrap();
}
