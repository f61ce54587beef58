//! The clean-up after a workflow.

use crate::LEASE;
use lambda_lock::{Error, ReleaseOutcome};
use lambda_lock_testkit::{Fault, Table, granted};

#[tokio::test(start_paused = true)]
async fn cleaning_up_after_a_workflow_frees_its_locks_and_no_others() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");

    let mut lock = granted(locks.acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;
    assert_eq!(locks.release_workflow("k", "arn:2").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert!(!table.is_released("k"));

    process.take_sent();
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(process.take_operations(), ["GetItem", "UpdateItem"]);
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    assert_eq!(locks.release_workflow("k", "arn:1").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert_eq!(locks.release_workflow("never locked", "arn:1").await.unwrap(), ReleaseOutcome::AlreadyGone);
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_spares_the_owners_that_it_is_given() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let again = granted(locks.acquire("k").lease(LEASE).owner("arn:1/1").workflow("arn:1").try_once()).await;
    let clean_up = |spared: &'static str| locks.release_workflow("k", "arn:1").sparing_owners(move |it| it == spared);

    assert_eq!(clean_up("arn:1/1").await.unwrap(), ReleaseOutcome::AlreadyGone);
    assert!(!table.is_released("k"));
    assert_eq!(clean_up("arn:1/0").await.unwrap(), ReleaseOutcome::Released);
    let _ = again.save();
}

/// A release that left out its data reports that, even if its response was lost.
#[tokio::test(start_paused = true)]
async fn a_clean_up_that_left_out_its_data_reports_that_although_a_response_was_lost() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let lock = granted(locks.acquire("k").lease(LEASE).workflow("arn:1").try_once()).await;
    let _ = lock.save();
    process.next([Fault::None, Fault::error("ValidationException"), Fault::AnswerLost]);

    let released: Result<ReleaseOutcome, Error> = locks.release_workflow("k", "arn:1").data(b"note".to_vec()).await;

    assert_eq!(table.attribute("k", "data"), None);
    assert!(table.is_released("k"));
    assert!(released.is_err(), "the payload is missing, and nobody says so: {released:?}");
}
