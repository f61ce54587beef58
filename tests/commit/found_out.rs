//! What a commit learns about an earlier copy of itself, and what it must not conclude.

use crate::{LEASE, applied, counted, created, forget, table};
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock_testkit::{Fault, Table, acquired, case, granted, millis, secs};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A temporary reason does not end the commit, whichever item has it.
#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_throttled_at_any_of_its_items_is_repeated() {
    for code in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"] {
        for (callers, own) in [(code, "None"), ("None", code), (code, code)] {
            let _case = case(format!("{callers}, {own}"));
            let body = format!(
                r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
                "CancellationReasons":[{{"Code":"{callers}"}},{{"Code":"{own}"}}]}}"#
            );
            let table = table();
            let process = table.process();
            let mut lock = acquired(&process.locks("me"), LEASE).await;
            process.next([Fault::Says(400, String::leak(body))]);

            lock.commit([counted("o-1")]).await.unwrap();

            assert_eq!(applied(&table, "o-1"), 1);
            lock.release().await.unwrap();
        }
    }
}

/// A Renew that found the commit applied came later than the commit, so its lease counts.
#[tokio::test(start_paused = true)]
async fn a_commit_that_a_renewal_found_applied_leaves_the_lease_of_the_renewal() {
    let table = table();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let mut lock = granted(locks.try_acquire("k").lease(secs(21)).within(&budget)).await;
    lock.commit([created("o-1")]).await.unwrap();
    process.next([Fault::ArrivesLate(millis(1200)), Fault::Slow(Duration::ZERO), Fault::Slow(millis(500))]);
    let orders = table.clone();
    tokio::spawn(async move {
        sleep(millis(1100)).await;
        forget(&orders, "o-1");
    });
    let started = Instant::now();

    lock.commit([created("o-1"), counted("o-2")]).await.unwrap();

    let (took, remaining) = (started.elapsed(), lock.remaining());
    assert!(took > millis(1400), "{took:?}");
    assert!(remaining > secs(19), "{remaining:?} after {took:?}: of 20 s, counted from the renewal");
    process.take_sent();
    lock.release().await.unwrap();
    assert_eq!(process.take_operations(), ["UpdateItem"], "it knows the newest version");
}

/// Only the complete key identifies the lock's own row.
#[tokio::test(start_paused = true)]
async fn a_commit_may_write_another_row_of_the_same_partition() {
    let table = Table::with_keys(&["pk", "sk"]);
    let process = table.process();
    let locks = process.builder().key_attribute("pk").sort_key_attribute("sk").build().unwrap();
    let mut lock = granted(locks.try_acquire(("a", "1")).lease(LEASE)).await;
    let row = |sort_key: &str| {
        let put = Put::builder().table_name("locks").item("pk", AttributeValue::S("a".to_owned()));
        let put = put.item("sk", AttributeValue::S(sort_key.to_owned())).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };

    assert!(lock.commit([row("1")]).await.unwrap_err().is_invalid_request());
    lock.commit([row("2")]).await.unwrap();

    lock.release().await.unwrap();
}

/// A row that cannot be read does not prove that no earlier copy will be applied.
#[tokio::test(start_paused = true)]
async fn a_commit_refused_by_an_unreadable_row_after_a_lost_answer_is_unknown() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    let row = table.row("k").unwrap();
    process.next([Fault::ArrivesLate(secs(5))]);
    let spoilt = table.clone();
    tokio::spawn(async move {
        sleep(millis(500)).await;
        spoilt.set("k", json!({"leaseDuration": {"S": "soon"}}));
    });

    let error = lock.commit([counted("o-1")]).await.unwrap_err();

    assert!(error.is_unknown(), "{error}");
    table.put(row);
    sleep(secs(6)).await;
    assert_eq!(applied(&table, "o-1"), 1, "the row was repaired, and the first copy came");
    let _ = lock.save();
}

/// The row is spoilt by hand while the commit is found out, and repaired before its transaction is sent again.
#[tokio::test(start_paused = true)]
async fn writes_that_are_refused_under_a_lock_that_is_held_do_not_show_that_no_earlier_copy_comes() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    lock.commit([created("o-1")]).await.unwrap();
    let row = table.row("k").unwrap();
    process.next([Fault::ArrivesLate(secs(9)), Fault::None, Fault::None, Fault::Slow(millis(300))]);
    let by_hand = table.clone();
    let repaired = row.clone();
    tokio::spawn(async move {
        // After the refusal of the second copy.
        sleep(millis(1_003)).await;
        by_hand.set("k", json!({"leaseDuration": {"S": "soon"}}));
        sleep(millis(200)).await;
        by_hand.put(repaired);
    });

    let error = lock.commit([created("o-1"), counted("o-2")]).await.unwrap_err();

    assert_eq!(table.row("k"), Some(row), "no renewal was applied");
    assert!(error.is_unknown(), "{error}");
    forget(&table, "o-1");
    sleep(secs(9)).await;
    assert_eq!(applied(&table, "o-2"), 1, "the first copy came");
    let _ = lock.save();
}
