//! A commit whose writes are refused applies nothing, and reports which of them failed.

use crate::{LEASE, applied, counted, created, forget, table, taken_by_another};
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem};
use lambda_lock::{Error, ErrorKind, FailedWrite};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, acquired, case, granted, millis, secs};
use std::error::Error as StdError;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_cancelled_commit_says_which_write_failed_and_why_and_the_lock_is_held_as_before() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    lock.commit([created("o-2")]).await.unwrap();
    sleep(secs(5)).await;
    let before = lock.remaining();
    process.take_sent();

    let error = lock.commit([counted("o-1"), created("o-2"), counted("o-3")]).await.unwrap_err();

    assert!(error.is_cancelled(), "{error}");
    let failed = error.failed_writes();
    assert!(matches!(failed, [FailedWrite { index: 1, code, .. }] if code == "ConditionalCheckFailed"), "{failed:?}");
    assert!(error.to_string().contains("write 1"), "{error}");
    assert!(StdError::source(&error).is_some(), "the SDK's error has the items");
    assert_eq!(process.take_operations(), ["TransactWriteItems"]);
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-3")), (0, 0));
    assert_eq!(lock.remaining(), before - ROUND_TRIP, "neither renewed nor lost");

    lock.commit([counted("o-1")]).await.unwrap();
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_reported_even_when_the_callers_writes_fail_too() {
    let table = table();
    let mut late = acquired(&table.process().locks("late"), LEASE).await;
    late.commit([created("o-1")]).await.unwrap();
    let other = taken_by_another(&table).await;

    let error = late.commit([created("o-1")]).await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_is_refused_after_its_commit_was_reported_as_cancelled() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    lock.commit([created("o-1")]).await.unwrap();
    process.take_sent();
    // The first copy arrives after the order is deleted. Without the lock's condition it could then be applied.
    process.next([Fault::ArrivesLate(secs(5))]);

    let error = lock.commit([created("o-1"), counted("o-2")]).await.unwrap_err();
    assert!(error.is_cancelled() && error.failed_writes()[0].index == 0, "{error}");
    assert_eq!(process.take_operations(), ["TransactWriteItems", "TransactWriteItems", "UpdateItem"]);

    forget(&table, "o-1");
    sleep(secs(10)).await;
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (0, 0));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_applied_before_its_commit_is_reported_as_cancelled_is_committed() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
    lock.commit([created("o-1")]).await.unwrap();
    // Two copies are in flight. The order still exists when the second one is refused. It is deleted when the
    // first one arrives, before the renewal that follows.
    process.next([Fault::ArrivesLate(millis(1200)), Fault::Slow(Duration::ZERO), Fault::Slow(millis(500))]);
    let orders = table.clone();
    let forgetting = tokio::spawn(async move {
        sleep(millis(1100)).await;
        forget(&orders, "o-1");
    });

    lock.commit([created("o-1"), counted("o-2")]).await.unwrap();

    forgetting.await.unwrap();
    assert_eq!((applied(&table, "o-1"), applied(&table, "o-2")), (1, 1));
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_applied_before_the_lock_was_lost_does_not_make_the_guard_rely_on_it() {
    let table = table();
    let process = table.process();
    let (locks, budget) = (process.locks("me"), process.budget(secs(60)));
    let acquire = locks.acquire("k").lease(millis(2_100)).within(&budget).try_once();
    let mut lock = granted(acquire).await;
    lock.commit([created("o-1")]).await.unwrap();
    // As above, the first copy is applied after the second one was refused. No renewal arrives before the lease
    // has ended and another call has been granted the lock.
    process.next([Fault::ArrivesLate(millis(1200)), Fault::Slow(Duration::ZERO)]);
    process.next(vec![Fault::BlackHole; 5]);
    let orders = table.clone();
    let other = tokio::spawn(async move {
        sleep(millis(1100)).await;
        forget(&orders, "o-1");
        sleep(secs(4)).await;
        acquired(&orders.process().locks("other"), LEASE).await
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
async fn a_transaction_that_dynamodb_would_refuse_is_refused_before_it_is_sent() {
    let table = table();
    let process = table.process();
    let mut lock = acquired(&process.locks("me"), LEASE).await;
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
        let _case = case(what);

        let error = lock.commit(writes).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
    assert_eq!(process.take_sent().len(), 0);

    lock.commit((0..99).map(|id| counted(&id.to_string()))).await.unwrap();
    lock.commit([counted("k")]).await.unwrap();

    let error = lock.commit([large(100), large(100)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "two writes on one item: {error}");

    let error = lock.commit_and_release(vec![own_row("locks")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(table.is_released("k"), "given back all the same");
}

/// Only the complete key identifies the lock's own row.
#[tokio::test(start_paused = true)]
async fn a_commit_may_write_another_row_of_the_same_partition() {
    let table = Table::with_keys(&["pk", "sk"]);
    let process = table.process();
    let locks = process.builder().key_attribute("pk").sort_key_attribute("sk").build().unwrap();
    let mut lock = granted(locks.acquire(("a", "1")).lease(LEASE).try_once()).await;
    let row = |sort_key: &str| {
        let put = Put::builder().table_name("locks").item("pk", AttributeValue::S("a".to_owned()));
        let put = put.item("sk", AttributeValue::S(sort_key.to_owned())).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };

    assert_eq!(lock.commit([row("1")]).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    lock.commit([row("2")]).await.unwrap();

    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_of_the_caller_is_not_reported_as_the_lock_table() {
    let table = Table::new();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    let error = lock.commit([counted("o-1")]).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Table, "{error}");
    assert!(error.to_string().contains("a table of the transaction"), "{error}");
    lock.release().await.unwrap();
}

/// The lock is reclaimed while the commit finds out its own outcome, and DynamoDB does not respond to the last request.
#[tokio::test(start_paused = true)]
async fn work_under_a_lock_learns_that_a_commit_found_the_lock_lost() {
    let table = table();
    let (one, two) = (table.process(), table.process());
    let budget = one.budget(secs(4)).grace(secs(10));
    let locks = one.locks("me");
    let mut left = None;
    let ended = locks
        .with_lock("k", &budget, async |lock| {
            lock.commit([created("o-1")]).await?;
            one.next([Fault::BlackHole, Fault::None, Fault::Slow(millis(500))]);
            one.next(vec![Fault::BlackHole; 20]);
            let saved = lock.to_saved();
            let (two, started) = (two.clone(), Instant::now());
            let other = tokio::spawn(async move {
                sleep(millis(1200)).await;
                two.locks("other").reclaim(saved).lease(LEASE).await.unwrap()
            });
            let error = lock.commit([created("o-1")]).await.unwrap_err();
            assert!(error.is_unknown(), "{error}");
            let other = other.await.unwrap();
            assert!(!other.remaining().is_zero());
            left = Some((started.elapsed(), lock.remaining()));
            let _ = other.save();
            Ok::<_, Error>(())
        })
        .await;
    one.clear();
    drop(ended);
    let (after, left) = left.unwrap();
    assert_eq!(left, Duration::ZERO, "after {after:?}, though a Renew had found the lock lost");
}
