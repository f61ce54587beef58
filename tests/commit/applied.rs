//! A commit applies its writes and renews the lock.

use crate::{LEASE, applied, counted, created, lock_within, table};
use lambda_lock::{CommitOutcome, DataChange, ErrorKind};
use lambda_lock_testkit::{Fault, ROUND_TRIP, acquired, case, secs};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a holder relies on its lease: 21 s / 1.05.
const BELIEVED: Duration = secs(20);

/// DynamoDB cancels a transaction for these reasons, one for each write.
fn cancelled(codes: &[&str]) -> Fault {
    let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code})).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "scripted",
        "CancellationReasons": reasons,
    });
    Fault::Says(400, Box::leak(body.to_string().into_boxed_str()))
}

#[tokio::test(start_paused = true)]
async fn a_commit_applies_the_writes_and_renews_the_lock_with_one_request() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    let (token, version) = (lock.fencing_token(), table.attribute("k", "recordVersionNumber").unwrap());
    process.take_sent();
    sleep(secs(15)).await;

    lock.commit([counted("o-1"), created("o-2")]).await.unwrap();
    assert_eq!(process.take_operations(), ["TransactWriteItems"]);
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (1, 1));
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    assert_eq!(lock.fencing_token(), token);
    let renewed = table.attribute("k", "recordVersionNumber").unwrap();
    assert!(renewed > version && renewed[..36] == version[..36], "a newer stamp of the same grant: {renewed}");

    lock.commit([counted("o-1")]).await.unwrap();
    assert_eq!(applied(&table, "o-1"), 2, "each commit is a transaction of its own");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_writes_is_a_renewal() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;
    sleep(secs(15)).await;

    lock.commit([]).await.unwrap();

    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_lease_can_still_commit_while_no_other_caller_was_granted_the_lock() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    sleep(secs(100)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);

    lock.commit([counted("o-1")]).await.unwrap();
    assert_eq!((applied(&table, "o-1"), lock.remaining()), (1, BELIEVED - ROUND_TRIP));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_other_transactions_is_tried_again_as_the_same_transaction_within_the_budget() {
    let conflicts = [
        cancelled(&["TransactionConflict", "None"]),
        cancelled(&["None", "TransactionConflict"]),
        cancelled(&["ThrottlingError", "TransactionConflict"]),
        Fault::error("ProvisionedThroughputExceededException"),
    ];
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();
    process.next(conflicts);

    lock.commit([counted("o-1")]).await.unwrap();
    let sent = process.take_sent();
    assert_eq!(sent.len(), 5);
    assert!(sent.iter().all(|each| each.body == sent[0].body), "{sent:#?}");
    assert_eq!(applied(&table, "o-1"), 1);

    let budget = process.budget(secs(30));
    let mut lock = lock_within(&process, lock, &budget).await;
    process.next((0..1000).map(|_| cancelled(&["TransactionConflict", "None"])));
    let began = Instant::now();

    let error = lock.commit([counted("o-1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() >= secs(29) && began.elapsed() < secs(32), "{:?}", began.elapsed());
    assert_eq!(applied(&table, "o-1"), 1);
}

/// A temporary reason does not end the commit, whichever item has it.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_throttled_at_any_of_its_items_is_repeated() {
    for code in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"] {
        for codes in [[code, "None"], ["None", code], [code, code]] {
            let _case = case(format!("{codes:?}"));
            let table = table();
            let process = table.process();
            let mut lock = acquired(&process.locks("me"), LEASE).await;
            process.next([cancelled(&codes)]);

            lock.commit([counted("o-1")]).await.unwrap();

            assert_eq!(applied(&table, "o-1"), 1);
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_carries_progress_in_the_same_transaction() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    lock.commit([counted("o-1")]).data("step 1").await.unwrap();
    assert_eq!(table.attribute("k", "data").unwrap(), "c3RlcCAx");

    lock.commit([created("o-1")]).data("step 2").await.unwrap_err();
    assert_eq!(table.attribute("k", "data").unwrap(), "c3RlcCAx", "all of it or nothing");

    lock.commit([]).data(DataChange::Remove).await.unwrap();
    assert_eq!(table.attribute("k", "data"), None);

    lock.commit_and_release([]).data("for the next").await.unwrap();
    assert_eq!(table.attribute("k", "data").unwrap(), "Zm9yIHRoZSBuZXh0");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_sent_again_is_the_same_to_the_last_byte() {
    for _ in 0..10 {
        let table = table();
        let process = table.process();
        let mut lock = acquired(&process.locks("me"), LEASE).await;
        process.take_sent();
        process.next([Fault::RequestLost, Fault::RequestLost]);

        lock.commit([counted("o-1"), counted("o-2")]).await.unwrap();

        let sent = process.take_sent();
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|each| each.body == sent[0].body), "{sent:#?}");
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_not_applied_over_its_own_version() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();
    lock.commit([counted("o-1")]).await.unwrap();
    let commit = process.take_sent().remove(0);
    // DynamoDB has forgotten the token, so the copy is a transaction like any other.
    let mut forgotten: serde_json::Value = serde_json::from_str(&commit.body).unwrap();
    forgotten["ClientRequestToken"] = json!("0123456789abcdef0123456789abcdef");

    let (status, _) = table.carry_out(&commit.operation, &forgotten.to_string());

    assert_eq!((status, applied(&table, "o-1")), (400, 1));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_dropped_during_the_renewal_for_a_clock_behind_is_known_to_be_applied() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.clock.jump_wall(-3_600_000);
    sleep(secs(15)).await;
    process.next([Fault::None]);
    process.next(vec![Fault::BlackHole; 100]);

    let dropped = tokio::time::timeout(Duration::from_millis(300), lock.commit([counted("o-1")]).into_future()).await;

    assert!(dropped.is_err(), "the renewal has no answer");
    process.clear();
    assert_eq!(lock.resolve_commit().await.unwrap(), CommitOutcome::Applied);
    assert_eq!(applied(&table, "o-1"), 1);
    lock.release().await.unwrap();
}
