//! The last commit releases the lock in the same transaction.

use crate::{LEASE, applied, counted, created, forget, table, taken_by_another};
use lambda_lock_testkit::{Fault, acquired, case, millis, secs};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_commit_and_release_is_one_request_and_the_lock_is_free_with_it() {
    let table = table();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();

    lock.commit_and_release([counted("o-1")]).await.unwrap();

    assert_eq!(process.take_operations(), ["TransactWriteItems"]);
    assert_eq!(applied(&table, "o-1"), 1);
    assert_eq!(table.attribute("k", "isReleased").unwrap(), "1");

    sleep(millis(5)).await;
    let next = acquired(&table.process().locks("next"), LEASE).await;
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_neither_writes_nor_releases_the_lock_of_another() {
    let table = table();
    let late = acquired(&table.process().locks("late"), LEASE).await;
    let other = taken_by_another(&table).await;
    let before = table.row("k");

    let error = late.commit_and_release([counted("o-1")]).await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!((applied(&table, "o-1"), table.row("k")), (0, before));
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_and_release_that_is_not_applied_still_releases_the_lock() {
    let table = table();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    lock.commit_and_release([created("o-1")]).await.unwrap();
    for (what, faults) in [
        ("cancelled", vec![]),
        ("cancelled with a copy on its way", vec![Fault::ArrivesLate(secs(30))]),
        ("unavailable", vec![Fault::throttled(); 40]),
        ("unknown", vec![Fault::ArrivesLate(secs(40)), Fault::BlackHole, Fault::BlackHole]),
    ] {
        let _case = case(what);
        sleep(millis(5)).await;
        let lock = acquired(&process.locks("me"), LEASE).await;
        process.next(faults);

        assert!(lock.commit_and_release([created("o-1"), counted("o-2")]).await.is_err());
        process.clear();

        if what == "unavailable" {
            // The release was throttled too, so the lock is free when its lease ends.
            sleep(secs(100)).await;
            continue;
        }
        assert!(table.is_released("k"));

        forget(&table, "o-1");
        sleep(secs(50)).await;
        assert_eq!(applied(&table, "o-2"), 0, "no copy of it is ever applied");

        acquired(&process.locks("me"), LEASE).await.commit_and_release([created("o-1")]).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_and_release_that_fails_says_whether_the_lock_may_still_be_held() {
    const REFUSED: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"scripted",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed"},{"Code":"None"}]}"#;
    // What becomes of the transaction, and whether the release that follows has a response.
    for (fault, is_unknown) in [(Fault::BlackHole, true), (Fault::Says(400, REFUSED), false)] {
        for is_released in [true, false] {
            let _case = case(format!("unknown: {is_unknown}, released: {is_released}"));
            let table = table();
            let process = table.process();
            let lock = acquired(&process.locks("me"), LEASE).await;
            let transactions = if is_unknown { 3 } else { 1 };
            process.next(vec![fault.clone(); transactions]);
            process.next(vec![if is_released { Fault::None } else { Fault::BlackHole }; 40]);

            let error = lock.commit_and_release([counted("o-1")]).await.unwrap_err();

            let said = error.to_string();
            assert!(error.is_unknown() == is_unknown && error.is_cancelled() != is_unknown, "{said}");
            assert!(!said.contains("resolve_commit") && said.contains("may be held") != is_released, "{said}");
            assert_eq!((error.may_be_held().len(), table.is_released("k")), (usize::from(!is_released), is_released));
        }
    }
}
