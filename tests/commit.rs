//! Commit: the caller's writes and the lock's in one transaction, applied once or not at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use lambda_lock::{CommitOutcome, ErrorKind, FailedWrite, Lock, LockClient};
use lambda_lock_testkit::{Fault, Process, ROUND_TRIP, Sent, Table};
use serde_json::{Value, json};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(21_000);
/// What a holder believes of it: 21 s / 1.05.
const BELIEVED: Duration = Duration::from_secs(20);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A lock table and a table of orders.
fn table() -> Table {
    let table = Table::new();
    table.call(
        "CreateTable",
        &json!({
            "TableName": "orders",
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        }),
    );
    table
}

async fn acquired(locks: &LockClient) -> Lock {
    locks.try_acquire("k").lease(LEASE).await.unwrap().granted().unwrap()
}

/// Counts how often it was applied.
fn counted(id: &str) -> TransactWriteItem {
    let update = Update::builder()
        .table_name("orders")
        .key("id", AttributeValue::S(id.to_owned()))
        .update_expression("ADD applied :one")
        .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
    TransactWriteItem::builder().update(update.build().unwrap()).build()
}

/// Only where there is no such order yet.
fn created(id: &str) -> TransactWriteItem {
    let put = Put::builder()
        .table_name("orders")
        .item("id", AttributeValue::S(id.to_owned()))
        .item("applied", AttributeValue::N("1".to_owned()))
        .condition_expression("attribute_not_exists(id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    TransactWriteItem::builder().put(put.build().unwrap()).build()
}

/// How often the effect was applied.
fn applied(table: &Table, id: &str) -> u32 {
    let key = json!({"TableName": "orders", "Key": {"id": {"S": id}}, "ConsistentRead": true});
    let answer = table.call("GetItem", &key);
    answer["Item"]["applied"]["N"].as_str().map_or(0, |count| count.parse().unwrap())
}

fn forget(table: &Table, id: &str) {
    table.call("DeleteItem", &json!({"TableName": "orders", "Key": {"id": {"S": id}}}));
}

/// A request's content: the order of names in its JSON means nothing.
fn content(sent: &Sent) -> Value {
    serde_json::from_str(&sent.body).unwrap()
}

fn transaction_id(sent: &Sent) -> String {
    content(sent)["ClientRequestToken"].as_str().unwrap().to_owned()
}

/// DynamoDB cancels a transaction for these reasons, one for each of its writes.
fn cancelled(codes: &[&str]) -> Fault {
    let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code})).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "scripted",
        "CancellationReasons": reasons,
    });
    Fault::Says(400, Box::leak(body.to_string().into_boxed_str()))
}

/// Another grant takes the lock after its lease.
async fn taken_by_another(table: &Table) -> Lock {
    tokio::time::sleep(secs(100)).await;
    let other = acquired(&table.process().locks("other")).await;
    assert!(other.owner().starts_with("other/"), "{other:?}");
    other
}

fn applied_unheard() -> [Fault; 5] {
    [
        Fault::AnswerLost,
        Fault::NeverAnswers,
        Fault::failure_after_apply(),
        Fault::AppliedButSays(200, r#"{"Attributes": {"#),
        Fault::error_after_apply("TransactionInProgressException"),
    ]
}

fn not_applied() -> [Fault; 4] {
    [Fault::RequestLost, Fault::BlackHole, Fault::Says(500, ""), Fault::Says(400, "<html>a proxy</html>")]
}

#[tokio::test(start_paused = true)]
async fn a_commit_applies_the_writes_and_renews_the_lock_with_one_request() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    let (token, version) = (lock.fencing_token(), table.attribute("k", "recordVersionNumber").unwrap());
    process.take_sent();
    tokio::time::sleep(secs(15)).await;
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
    let mut lock = acquired(&table.process().locks("me")).await;
    tokio::time::sleep(secs(15)).await;
    lock.commit([]).await.unwrap();
    assert_eq!(lock.remaining(), BELIEVED - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_paused_and_lost_the_lock_writes_nothing() {
    let table = table();
    let mut late = acquired(&table.process().locks("late")).await;
    let other = taken_by_another(&table).await;
    let before = table.row("k");
    let error = late.commit([counted("o-1")]).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(applied(&table, "o-1"), 0);
    assert_eq!(table.row("k"), before, "and leaves the other holder's row alone");
    assert!(late.commit([counted("o-1")]).await.unwrap_err().is_lost(), "nothing is asked any more");
    assert!(late.condition_check().unwrap_err().is_lost());
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_can_still_commit_while_nobody_else_was_granted_the_lock() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me")).await;
    tokio::time::sleep(secs(100)).await;
    assert_eq!(lock.remaining(), Duration::ZERO);
    lock.commit([counted("o-1")]).await.unwrap();
    assert_eq!((applied(&table, "o-1"), lock.remaining()), (1, BELIEVED - ROUND_TRIP));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_was_lost_is_applied_once_and_comes_back_as_success() {
    for fault in applied_unheard().into_iter().chain(not_applied()) {
        let table = table();
        let process = table.process();
        let mut lock = acquired(&process.locks("me")).await;
        process.take_sent();
        process.next([fault.clone()]);
        lock.commit([counted("o-1")]).await.unwrap();
        let sent = process.take_sent();
        assert_eq!(sent.len(), 2, "{fault:?}");
        assert_eq!(content(&sent[0]), content(&sent[1]), "the same transaction, token and all: {fault:?}");
        assert_eq!(applied(&table, "o-1"), 1, "{fault:?}");
        lock.checkpoint().await.unwrap();
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_repeated_commit_counts_from_before_it_was_first_sent() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next([Fault::NeverAnswers, Fault::Slow(Duration::from_millis(500))]);
    lock.commit([counted("o-1")]).await.unwrap();
    assert_eq!(lock.remaining(), BELIEVED - Duration::from_millis(1500) - ROUND_TRIP);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conflict_with_other_transactions_is_tried_again_as_a_new_transaction_within_the_budget() {
    let conflicts = [
        cancelled(&["TransactionConflict", "None"]),
        cancelled(&["None", "TransactionConflict"]),
        cancelled(&["ThrottlingError", "TransactionConflict"]),
        Fault::error("ProvisionedThroughputExceededException"),
    ];
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.take_sent();
    process.next(conflicts);
    lock.commit([counted("o-1")]).await.unwrap();
    let sent = process.take_sent();
    assert_eq!(sent.len(), 5);
    for (earlier, later) in sent.iter().zip(&sent[1..]) {
        assert_ne!(transaction_id(earlier), transaction_id(later));
    }
    assert_eq!(applied(&table, "o-1"), 1);

    let budget = process.budget(secs(30));
    let mut lock = lock_within(&process, lock, &budget).await;
    process.next((0..1000).map(|_| cancelled(&["TransactionConflict", "None"])));
    let began = tokio::time::Instant::now();
    let error = lock.commit([counted("o-1")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable), "{error}");
    assert!(began.elapsed() >= secs(29) && began.elapsed() < secs(32), "{:?}", began.elapsed());
    assert_eq!(applied(&table, "o-1"), 1);
}

async fn lock_within(process: &Process, lock: Lock, budget: &lambda_lock::Budget) -> Lock {
    process.locks("me").resume(lock.into_token()).within(budget).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_commit_says_which_write_failed_and_why_and_the_lock_is_held_as_before() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    lock.commit([created("o-2")]).await.unwrap();
    tokio::time::sleep(secs(5)).await;
    let before = lock.remaining();
    process.take_sent();
    let error = lock.commit([counted("o-1"), created("o-2"), counted("o-3")]).await.unwrap_err();
    let ErrorKind::Cancelled(failed) = error.kind() else { panic!("{error}") };
    assert!(
        matches!(failed.as_slice(), [FailedWrite { index: 1, code, .. }] if code == "ConditionalCheckFailed"),
        "{failed:?}"
    );
    assert!(error.to_string().contains("write 1"), "{error}");
    assert!(std::error::Error::source(&error).is_some(), "the SDK's error has the items");
    assert_eq!(process.take_operations(), ["TransactWriteItems"]);
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-3")), (0, 0));
    assert_eq!(lock.remaining(), before - ROUND_TRIP, "neither renewed nor lost");
    lock.commit([counted("o-1")]).await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_lost_the_lock_is_told_so_even_when_its_own_writes_fail_too() {
    let table = table();
    let mut late = acquired(&table.process().locks("late")).await;
    late.commit([created("o-1")]).await.unwrap();
    let other = taken_by_another(&table).await;
    let error = late.commit([created("o-1")]).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_still_on_its_way_is_refused_after_its_commit_was_called_cancelled() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    lock.commit([created("o-1")]).await.unwrap();
    process.take_sent();
    // The first copy arrives after the order is gone: by itself it could then be applied.
    process.next([Fault::ArrivesLate(secs(5))]);
    let error = lock.commit([created("o-1"), counted("o-2")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled(failed) if failed[0].index == 0), "{error}");
    assert_eq!(process.take_operations(), ["TransactWriteItems", "TransactWriteItems", "UpdateItem"]);
    forget(&table, "o-1");
    tokio::time::sleep(secs(10)).await;
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (0, 0));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_lands_just_before_it_would_be_called_cancelled_is_called_committed() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    lock.commit([created("o-1")]).await.unwrap();
    // Two copies are on their way; the order is still there when the second one is refused, and gone
    // when the first one lands, before the renewal that follows.
    process.next([
        Fault::ArrivesLate(Duration::from_millis(1200)),
        Fault::Slow(Duration::ZERO),
        Fault::Slow(Duration::from_millis(500)),
    ]);
    let orders = table.clone();
    let forgetting = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        forget(&orders, "o-1");
    });
    let committed = lock.commit([created("o-1"), counted("o-2")]).await;
    forgetting.await.unwrap();
    committed.unwrap();
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (1, 1));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_applied_before_the_lock_was_lost_does_not_make_the_guard_say_ours() {
    let table = table();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let acquire = locks.try_acquire("k").lease(Duration::from_millis(2_100)).within(&budget);
    let mut lock = acquire.await.unwrap().granted().unwrap();
    lock.commit([created("o-1")]).await.unwrap();
    // As above the first copy is applied after the second one was refused. No renewal arrives before the lease is
    // over and another call has been granted the lock.
    process.next([Fault::ArrivesLate(Duration::from_millis(1200)), Fault::Slow(Duration::ZERO)]);
    process.next(vec![Fault::BlackHole; 5]);
    let orders = table.clone();
    let other = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1100)).await;
        forget(&orders, "o-1");
        tokio::time::sleep(secs(4)).await;
        acquired(&orders.process().locks("other")).await
    });

    lock.commit([created("o-1"), counted("o-2")]).await.unwrap();

    let other = other.await.unwrap();
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (1, 1));
    assert!(!other.remaining().is_zero());
    assert_eq!(lock.remaining(), Duration::ZERO, "beside the next holder");
    assert!(lock.checkpoint().await.unwrap_err().is_lost());
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_unknown_outcome_is_settled_by_the_next_renewal() {
    let all_unheard = || std::iter::repeat_n(Fault::NeverAnswers, 3);
    let none_arrived = || std::iter::repeat_n(Fault::BlackHole, 3);
    for (faults, outcome, count) in [
        (all_unheard().collect::<Vec<_>>(), CommitOutcome::Applied, 1),
        (none_arrived().collect(), CommitOutcome::NotApplied, 0),
    ] {
        for checkpoint_first in [false, true] {
            let table = table();
            let process = table.process();
            let mut lock = acquired(&process.locks("me")).await;
            process.next(faults.clone());
            let error = lock.commit([counted("o-1")]).await.unwrap_err();
            assert!(error.is_unknown() && error.to_string().contains("settle_commit"), "{error}");
            process.take_sent();
            let again = lock.commit([counted("o-1")]).await.unwrap_err();
            assert!(matches!(again.kind(), ErrorKind::InvalidRequest), "not while it may be applied twice: {again}");
            if checkpoint_first {
                lock.checkpoint().await.unwrap();
                let again = lock.commit([counted("o-1")]).await.unwrap_err();
                assert!(matches!(again.kind(), ErrorKind::InvalidRequest), "not before the caller knows: {again}");
            }
            assert_eq!(lock.settle_commit().await.unwrap(), outcome);
            assert_eq!(process.take_operations(), ["UpdateItem"]);
            assert_eq!(applied(&table, "o-1"), count);
            assert!(lock.settle_commit().await.is_err(), "nothing is left to settle");
            lock.commit([counted("o-2")]).await.unwrap();
            lock.release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_settled_as_not_applied_never_will_be() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next([Fault::ArrivesLate(secs(10)), Fault::BlackHole, Fault::BlackHole]);
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::NotApplied);
    tokio::time::sleep(secs(12)).await;
    assert_eq!(applied(&table, "o-1"), 0);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_the_row_no_longer_tells_nobody_guesses() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next(std::iter::repeat_n(Fault::NeverAnswers, 3));
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    // A copy of the lock renews it: the commit's version is gone from the row.
    let copy = table.process().locks("me").resume(lock.token()).await.unwrap();
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Indeterminate);
    let _ = copy.into_token();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_dropped_half_way_is_settled_too() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    process.next([Fault::NeverAnswers]);
    let dropped = tokio::time::timeout(Duration::from_millis(100), lock.commit([counted("o-1")]).into_future()).await;
    assert!(dropped.is_err());
    assert_eq!(lock.settle_commit().await.unwrap(), CommitOutcome::Applied);
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_not_repeated_for_longer_than_dynamodb_recognises_its_token() {
    let table = table();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    let mut lock = lock_within(&process, lock, &process.budget(secs(900))).await;
    process.take_sent();
    process.next(std::iter::repeat_n(Fault::BlackHole, 10_000));
    let began = tokio::time::Instant::now();
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
    assert!(began.elapsed() < secs(9 * 60), "{:?}", began.elapsed());
    assert!(began.elapsed() > secs(7 * 60), "and not given up early: {:?}", began.elapsed());
}

/// Whichever clock stands still or goes back, by the other one the token is too old.
#[tokio::test(start_paused = true)]
async fn neither_a_frozen_sandbox_nor_a_clock_set_back_repeats_a_transaction_that_dynamodb_has_forgotten() {
    for frozen in [true, false] {
        let table = table();
        let process = table.process();
        process.set_date_offset(None);
        let lock = acquired(&process.locks("me")).await;
        let mut lock = lock_within(&process, lock, &process.budget(secs(3600))).await;
        process.take_sent();
        process.next(std::iter::repeat_n(Fault::BlackHole, 10_000));
        let clock = process.clock.clone();
        let disturbed = tokio::spawn(async move {
            tokio::time::sleep(secs(100)).await;
            if frozen {
                clock.freeze(secs(1000)).await;
            } else {
                clock.jump_wall(-3_600_000);
            }
        });
        assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_unknown());
        disturbed.abort();
        let sent = process.take_sent();
        let transactions: Vec<&Sent> = sent.iter().filter(|sent| sent.operation == "TransactWriteItems").collect();
        let (first, last) = (transactions[0], transactions[transactions.len() - 1]);
        let repeated_for = last.at - first.at;
        assert!(repeated_for <= secs(8 * 60), "frozen: {frozen}: {repeated_for:?}");
        assert!(repeated_for >= secs(7 * 60), "frozen: {frozen}: given up early: {repeated_for:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_renewed_the_lock_elsewhere_does_not_make_a_commit_fail() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    let copy = table.process().locks("me").resume(lock.token()).lease(secs(60)).await.unwrap();
    process.take_sent();
    lock.commit([counted("o-1")]).await.unwrap();
    let sent = process.take_sent();
    assert_eq!(sent.len(), 2, "refused once for the lease that it did not know");
    assert_ne!(transaction_id(&sent[0]), transaction_id(&sent[1]));
    assert_eq!(applied(&table, "o-1"), 1);
    assert_eq!(table.attribute("k", "leaseDuration").unwrap(), "60000", "and never shortens the lease");
    let _ = copy.into_token();
    lock.commit_and_release([counted("o-1")]).await.unwrap();
    assert_eq!(applied(&table, "o-1"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_commit_carries_progress_in_the_same_transaction() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me")).await;
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
async fn a_commit_and_release_is_one_request_and_the_lock_is_free_with_it() {
    let table = table();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    process.take_sent();
    lock.commit_and_release([counted("o-1")]).await.unwrap();
    assert_eq!(process.take_operations(), ["TransactWriteItems"]);
    assert_eq!(applied(&table, "o-1"), 1);
    assert_eq!(table.attribute("k", "isReleased").unwrap(), "1");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let next = acquired(&table.process().locks("next")).await;
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_and_release_whose_answer_was_lost_is_applied_once() {
    for fault in applied_unheard().into_iter().chain(not_applied()) {
        let table = table();
        let process = table.process();
        let lock = acquired(&process.locks("me")).await;
        process.take_sent();
        process.next([fault.clone()]);
        lock.commit_and_release([counted("o-1")]).await.unwrap();
        let sent = process.take_sent();
        assert_eq!(sent.len(), 2, "{fault:?}");
        assert_eq!(content(&sent[0]), content(&sent[1]), "{fault:?}");
        assert_eq!(applied(&table, "o-1"), 1, "{fault:?}");
        assert!(table.attribute("k", "isReleased").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_neither_writes_nor_releases_the_lock_of_another() {
    let table = table();
    let late = acquired(&table.process().locks("late")).await;
    let other = taken_by_another(&table).await;
    let before = table.row("k");
    let error = late.commit_and_release([counted("o-1")]).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!((applied(&table, "o-1"), table.row("k")), (0, before));
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_released_elsewhere_is_not_committed_under() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me")).await;
    table.process().locks("me").release(lock.token()).await.unwrap();
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_lost());
    let lock = {
        tokio::time::sleep(Duration::from_millis(5)).await;
        acquired(&table.process().locks("me")).await
    };
    table.process().locks("me").release(lock.token()).await.unwrap();
    assert!(lock.commit_and_release([counted("o-1")]).await.unwrap_err().is_lost());
    assert_eq!(applied(&table, "o-1"), 0);
}

#[tokio::test(start_paused = true)]
async fn whatever_keeps_a_commit_and_release_from_being_applied_the_lock_is_given_back() {
    let table = table();
    let process = table.process();
    let lock = acquired(&process.locks("me")).await;
    lock.commit_and_release([created("o-1")]).await.unwrap();
    for (what, faults) in [
        ("cancelled", vec![]),
        ("cancelled with a copy on its way", vec![Fault::ArrivesLate(secs(30))]),
        ("unavailable", vec![Fault::error("ThrottlingException"); 40]),
        ("unknown", vec![Fault::ArrivesLate(secs(40)), Fault::BlackHole, Fault::BlackHole]),
    ] {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let lock = acquired(&process.locks("me")).await;
        process.next(faults);
        assert!(lock.commit_and_release([created("o-1"), counted("o-2")]).await.is_err(), "{what}");
        process.clear();
        if what == "unavailable" {
            // The release was throttled too: the lease frees the lock.
            tokio::time::sleep(secs(100)).await;
            continue;
        }
        assert!(table.attribute("k", "isReleased").is_some(), "{what}");
        forget(&table, "o-1");
        tokio::time::sleep(secs(50)).await;
        assert_eq!(applied(&table, "o-2"), 0, "no copy of it is ever applied: {what}");
        acquired(&process.locks("me")).await.commit_and_release([created("o-1")]).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_in_the_callers_own_transaction_holds_while_the_grant_is_current() {
    let table = table();
    let process = table.process();
    let locks = process.locks("me");
    let send = async |items: [TransactWriteItem; 2]| {
        process.dynamodb().transact_write_items().set_transact_items(Some(items.into())).send().await
    };
    let mut lock = acquired(&locks).await;
    send([counted("o-1"), lock.condition_check().unwrap()]).await.unwrap();
    lock.checkpoint().await.unwrap();
    send([counted("o-1"), lock.condition_check().unwrap()]).await.unwrap();
    let token = lock.token();
    send([counted("o-1"), locks.condition_check(&token).unwrap()]).await.unwrap();
    assert_eq!(applied(&table, "o-1"), 3);

    let fence = lock.condition_check().unwrap();
    let other = taken_by_another(&table).await;
    assert!(send([counted("o-1"), fence]).await.is_err());
    let fence = other.condition_check().unwrap();
    other.release().await.unwrap();
    assert!(send([counted("o-1"), fence]).await.is_err(), "released");
    assert!(send([counted("o-1"), locks.condition_check(&token).unwrap()]).await.is_err());
    assert_eq!(applied(&table, "o-1"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_dynamodb_would_refuse_is_refused_before_it_is_sent() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me")).await;
    let own_row = |table: &str| {
        let delete = Delete::builder().table_name(table).key("key", AttributeValue::S("k".to_owned()));
        TransactWriteItem::builder().delete(delete.build().unwrap()).build()
    };
    let large = |bytes: usize| {
        let put = Put::builder().table_name("orders").item("id", AttributeValue::S("o".to_owned()));
        let put = put.item("text", AttributeValue::S("x".repeat(bytes))).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };
    let check = ConditionCheck::builder().table_name("locks").key("key", AttributeValue::S("k".to_owned()));
    let check = check.condition_expression("attribute_exists(ownerName)").build().unwrap();
    process.take_sent();
    for (what, writes) in [
        ("100 writes", (0..100).map(|id| counted(&id.to_string())).collect::<Vec<_>>()),
        ("4 MB", vec![large(4 * 1024 * 1024)]),
        ("the lock's own row", vec![counted("o-1"), own_row("locks")]),
        ("by its ARN", vec![own_row("arn:aws:dynamodb:eu-central-1:123456789012:table/locks")]),
        ("checked", vec![TransactWriteItem::builder().condition_check(check).build()]),
        ("empty", vec![TransactWriteItem::builder().build()]),
    ] {
        let error = lock.commit(writes).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "{what}: {error}");
    }
    assert_eq!(process.take_sent().len(), 0);
    lock.commit((0..99).map(|id| counted(&id.to_string()))).await.unwrap();
    lock.commit([counted("k")]).await.unwrap();
    let error = lock.commit([large(100), large(100)]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "two writes on one item: {error}");
    let error = lock.commit_and_release(vec![own_row("locks")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest), "{error}");
    assert!(table.attribute("k", "isReleased").is_some(), "given back all the same");
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_of_the_callers_is_not_blamed_on_the_lock_table() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me")).await;
    let error = lock.commit([counted("o-1")]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Table), "{error}");
    assert!(error.to_string().contains("a table of the transaction"), "{error}");
    lock.release().await.unwrap();
}
