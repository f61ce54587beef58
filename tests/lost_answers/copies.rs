//! Requests that arrive twice.

use crate::LEASE;
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, Table, acquired, secs};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_arrives_after_the_release_changes_nothing() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let locks = one.locks("one");
    one.next([Fault::ArrivesTwice(secs(5))]);
    let mut lock = acquired(&locks, LEASE).await;
    one.next([Fault::ArrivesTwice(secs(5))]);
    lock.checkpoint().await.unwrap();
    one.next([Fault::ArrivesTwice(secs(5))]);
    lock.release().await.unwrap();
    let next = acquired(&two.locks("two"), LEASE).await;
    let before = table.row("k");

    sleep(secs(10)).await;

    assert_eq!(table.row("k"), before, "copies of claim, renewal and release were all refused");
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_claim_applied_twice_around_another_holder_does_not_make_the_first_one_current() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let mut first = acquired(&one.locks("one"), LEASE).await;
    let claim = one.take_sent().remove(0);
    first.checkpoint().await.unwrap();
    let token = first.to_saved();
    // Another holder, whose clock is a minute behind, acquires and releases the lock. By that clock the
    // release was before the first one's request. So a copy of that request finds a lock that was
    // already free at its time.
    two.set_date_offset(None);
    two.clock.jump_wall(-60_000);
    let budget = two.budget(secs(40)).reserve(secs(1));
    let second = two.locks("two").acquire("k").within(&budget).await.unwrap();
    let newer = second.fencing_token();

    second.release().await.unwrap();
    assert!(table.replay(&claim), "applied again");
    assert_eq!(table.attribute("k", "fencingToken"), Some((newer + 1).to_string()));

    assert!(first.checkpoint().await.unwrap_err().is_lost(), "the row carries our grant, but not our token");

    let locks = one.locks("one");
    assert_eq!(locks.release(token).await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert!(!table.is_released("k"));
}
