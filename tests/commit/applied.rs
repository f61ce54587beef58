//! A commit applies its writes and renews the lock.

use crate::{LEASE, applied, content, counted, created, lock_within, table, unheard_or_lost};
use lambda_lock::CommitOutcome;
use lambda_lock_testkit::{Fault, ROUND_TRIP, Sent, acquired, case, millis, secs};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a holder relies on its lease: 21 s / 1.05.
const BELIEVED: Duration = secs(20);

fn transaction_id(sent: &Sent) -> String {
    content(sent)["ClientRequestToken"].as_str().unwrap().to_owned()
}

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
async fn a_commit_whose_answer_was_lost_is_applied_once_and_comes_back_as_success() {
    for fault in unheard_or_lost() {
        let _case = case(format!("{fault:?}"));
        let table = table();
        let process = table.process();
        let mut lock = acquired(&process.locks("me"), LEASE).await;
        process.take_sent();
        process.next([fault.clone()]);

        lock.commit([counted("o-1")]).await.unwrap();

        let sent = process.take_sent();
        assert_eq!(sent.len(), 2);
        assert_eq!(content(&sent[0]), content(&sent[1]), "the same transaction, token and all");
        assert_eq!(applied(&table, "o-1"), 1);

        lock.checkpoint().await.unwrap();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_repeated_commit_counts_from_before_it_was_first_sent() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.next([Fault::NeverAnswers, Fault::Slow(millis(500))]);

    lock.commit([counted("o-1")]).await.unwrap();

    assert_eq!(lock.remaining(), BELIEVED - millis(1500) - ROUND_TRIP);
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
    assert!(error.is_unavailable(), "{error}");
    assert!(began.elapsed() >= secs(29) && began.elapsed() < secs(32), "{:?}", began.elapsed());
    assert_eq!(applied(&table, "o-1"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_transaction_that_met_a_conflict_is_not_applied_beside_the_next_one() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();
    process.next([cancelled(&["None", "TransactionConflict"])]);
    // The copy arrives in the pause before the next try.
    let late_copy = async {
        sleep(2 * ROUND_TRIP).await;
        assert!(table.replay(&process.take_sent().remove(0)), "nothing refuses it");
        assert!(process.sent().is_empty(), "the next try comes later");
    };

    let (committed, ()) = tokio::join!(lock.commit([counted("o-1")]).into_future(), late_copy);

    committed.unwrap();
    assert_eq!(applied(&table, "o-1"), 1);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_renewed_the_lock_elsewhere_does_not_make_a_commit_fail() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    let copy = table.process().locks("me").resume(lock.to_saved()).lease(secs(60)).await.unwrap();
    process.take_sent();

    lock.commit([counted("o-1")]).await.unwrap();
    let sent = process.take_sent();
    assert_eq!(sent.len(), 2, "refused once for the lease that it did not know");
    assert_ne!(transaction_id(&sent[0]), transaction_id(&sent[1]));
    assert_eq!(applied(&table, "o-1"), 1);
    assert_eq!(table.attribute("k", "leaseDuration").unwrap(), "60000", "and never shortens the lease");
    let _ = copy.save();

    lock.commit_and_release([counted("o-1")]).await.unwrap();
    assert_eq!(applied(&table, "o-1"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_commit_carries_progress_in_the_same_transaction() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    lock.commit([counted("o-1")]).data("step 1").await.unwrap();
    assert_eq!(table.attribute("k", "data").unwrap(), "c3RlcCAx");

    lock.commit([created("o-1")]).data("step 2").await.unwrap_err();
    assert_eq!(table.attribute("k", "data").unwrap(), "c3RlcCAx", "all of it or nothing");

    lock.commit([]).remove_data().await.unwrap();
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

/// The clock was set back by an hour while the lock was held. What the commit wrote of the lease has passed for others.
#[tokio::test(start_paused = true)]
async fn a_commit_written_by_a_clock_that_is_behind_is_followed_by_a_renewal() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    process.take_sent();
    process.clock.jump_wall(-3_600_000);
    sleep(secs(15)).await;

    lock.commit([counted("o-1")]).await.unwrap();

    assert_eq!(process.take_operations(), ["TransactWriteItems", "UpdateItem"]);
    let right = table.process().clock.wall_millis();
    assert!(table.number("k", "leaseEndsAt") >= right + 20_900, "the lease is as long as any other");
    assert!(lock.remaining() > secs(19));
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
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied);
    assert_eq!(applied(&table, "o-1"), 1);
    lock.release().await.unwrap();
}
