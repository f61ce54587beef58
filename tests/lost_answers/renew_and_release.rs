//! A renewal or a release whose response was lost.

use crate::LEASE;
use lambda_lock::ReleaseOutcome;
use lambda_lock_testkit::{Fault, Table, acquired, case, millis, secs};
use serde_json::json;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_is_not_lost() {
    for fault in Fault::applied_unheard().into_iter().chain(Fault::not_applied()) {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me"), LEASE).await;
        process.take_sent();
        process.next([fault.clone()]);

        lock.checkpoint().await.unwrap();

        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_was_lost_is_released() {
    for fault in Fault::applied_unheard().into_iter().chain(Fault::not_applied()) {
        let _case = case(format!("{fault:?}"));
        // A release requests no attributes, so an unreadable 200 is a full response for it.
        let table = Table::new();
        let process = table.process();
        let lock = acquired(&process.locks("me"), LEASE).await;
        process.take_sent();
        process.next([fault.clone()]);

        assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
        assert!(table.is_released("k"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_renewal_that_was_applied_unheard_takes_one_more_request() {
    let table = Table::new();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next([Fault::NeverAnswers, Fault::BlackHole, Fault::BlackHole]);

    assert!(lock.checkpoint().await.unwrap_err().is_unknown());

    process.take_sent();
    assert_eq!(lock.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(process.take_operations(), ["UpdateItem", "UpdateItem"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_answer_was_lost_is_released() {
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        let process = table.process();
        let lock = acquired(&process.locks("me"), LEASE).await;
        process.next([fault]);

        assert_eq!(lock.release().delete_row().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(table.row("k"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_gets_through_at_all() {
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

/// Somebody spoils the row by hand for a while. The first request arrives when the row is repaired.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_lock_record_does_not_show_what_became_of_an_earlier_request() {
    for releases in [false, true] {
        let _case = case(format!("releases: {releases}"));
        let table = Table::new();
        let process = table.process();
        let mut lock = acquired(&process.locks("me"), LEASE).await;
        let row = table.row("k").unwrap();
        process.next([Fault::ArrivesLate(secs(5))]);
        let spoilt = table.clone();
        tokio::spawn(async move {
            sleep(millis(500)).await;
            spoilt.set("k", json!({"leaseDuration": {"S": "soon"}, "fencingToken": {"S": "none"}}));
        });

        let error = if releases { lock.release().await.unwrap_err() } else { lock.checkpoint().await.unwrap_err() };

        assert!(error.is_unknown(), "{error}");
        table.put(row.clone());
        sleep(secs(6)).await;
        assert_ne!(table.row("k"), Some(row), "the first request was applied");
    }
}
