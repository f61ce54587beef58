//! The holder's payload, from one grant to the next.

use crate::LEASE;
use lambda_lock::{DataChange, ErrorKind, ReleaseOutcome};
use lambda_lock_testkit::{Table, acquired, granted, secs};
use serde_json::json;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn data_is_kept_replaced_and_removed_by_acquire_renewal_and_release() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = || locks.acquire("k").lease(LEASE);

    let mut lock = granted(acquire().data("one").try_once()).await;
    assert_eq!(lock.data(), Some(&b"one"[..]));

    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();

    let mut lock = granted(acquire().try_once()).await;
    assert_eq!(lock.data(), Some(&b"one"[..]), "what the last holder left");

    lock.renew().data("two").await.unwrap();
    lock.release().await.unwrap();

    let lock = granted(acquire().try_once()).await;
    assert_eq!(lock.data(), Some(&b"two"[..]));

    lock.release().data("three").await.unwrap();

    let mut lock = granted(acquire().try_once()).await;
    assert_eq!(lock.data(), Some(&b"three"[..]));

    lock.renew().data(DataChange::Remove).await.unwrap();
    lock.release().await.unwrap();
    let lock = granted(acquire().data("four").try_once()).await;
    lock.release().data(DataChange::Remove).await.unwrap();

    let lock = granted(acquire().try_once()).await;
    assert_eq!(lock.data(), None);

    lock.release().data("five").await.unwrap();
    let lock = granted(acquire().data(DataChange::Remove).try_once()).await;
    assert_eq!(lock.data(), None);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn data_carries_progress_across_a_takeover() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let mut lock = acquired(&locks, LEASE).await;
    lock.renew().data("step 2 of 3").await.unwrap();
    let _ = lock.save();
    sleep(secs(30)).await;

    let lock = acquired(&locks, LEASE).await;

    assert_eq!(lock.data(), Some(&b"step 2 of 3"[..]));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resume_with_data_that_does_not_fit_is_refused_before_a_request_and_the_saved_lock_stays_good() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let saved = acquired(&locks, LEASE).await.save();
    process.take_sent();

    let error = locks.resume(saved.clone()).data(vec![0; 400 * 1024]).await.unwrap_err();

    assert_eq!((error.kind(), process.take_operations().len()), (ErrorKind::InvalidRequest, 0), "{error}");
    locks.resume(saved).data("fits").await.unwrap().release().await.unwrap();
    assert_eq!(table.row("k").unwrap()["data"], json!({ "B": "Zml0cw==" }));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_without_data_that_does_not_fit_and_the_error_says_so() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();

    let error = lock.release().data(vec![0; 400 * 1024]).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("was released, but without its data"), "{error}");
    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert!(table.is_released("k"));
    assert_eq!(table.attribute("k", "data"), None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_without_data_that_does_not_fit_beside_what_others_have_stored_in_its_row() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me"), LEASE).await;
    table.set("k", json!({"note": {"S": "n".repeat(5000)}}));

    let error = lock.release().data(vec![0; 400 * 1024 - 3000]).await.unwrap_err();

    assert!(error.to_string().contains("was released, but without its data"), "{error}");
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_holder_with_a_long_name_is_released_without_data_that_does_not_fit_beside_the_name() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let acquire = locks.acquire("k").lease(LEASE).owner("o".repeat(2048)).try_once();
    let lock = granted(acquire).await;

    let error = lock.release().data(vec![0; 400 * 1024 - 2048]).await.unwrap_err();

    assert!(error.to_string().contains("was released, but without its data"), "{error}");
    assert!(table.is_released("k"));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_came_too_late_never_reports_that_it_released() {
    let table = Table::new();
    let lock = acquired(&table.process().locks("me"), LEASE).await;
    sleep(secs(60)).await;
    let other = acquired(&table.process().locks("other"), LEASE).await;

    let gone = lock.release().data(vec![0; 400 * 1024]).await;

    assert!(matches!(gone, Ok(ReleaseOutcome::AlreadyGone)), "{gone:?}");
    other.release().await.unwrap();
}
