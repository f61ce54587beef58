//! Only the current holder can write.

use crate::{LEASE, applied, counted, table, taken_by_another};
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_testkit::{Fault, acquired, millis, secs};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_holder_that_was_paused_and_lost_the_lock_writes_nothing() {
    let table = table();
    let mut late = acquired(&table.process().locks("late"), LEASE).await;
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
async fn a_commit_under_a_lock_that_was_released_elsewhere_is_refused() {
    let table = table();
    let mut lock = acquired(&table.process().locks("me"), LEASE).await;

    table.process().locks("me").release(lock.to_saved()).await.unwrap();
    assert!(lock.commit([counted("o-1")]).await.unwrap_err().is_lost());

    let lock = {
        sleep(millis(5)).await;
        acquired(&table.process().locks("me"), LEASE).await
    };
    table.process().locks("me").release(lock.to_saved()).await.unwrap();
    assert!(lock.commit_and_release([counted("o-1")]).await.unwrap_err().is_lost());
    assert_eq!(applied(&table, "o-1"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fence_in_the_callers_own_transaction_holds_while_the_grant_is_current() {
    let table = table();
    let process = table.process();
    let locks = process.locks("me");
    let send = async |items: [TransactWriteItem; 2]| {
        process.dynamodb().transact_write_items().set_transact_items(Some(items.into())).send().await
    };
    let mut lock = acquired(&locks, LEASE).await;

    send([counted("o-1"), lock.condition_check().unwrap()]).await.unwrap();
    lock.checkpoint().await.unwrap();
    send([counted("o-1"), lock.condition_check().unwrap()]).await.unwrap();
    let token = lock.to_saved();
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
async fn a_transaction_cancelled_without_a_look_at_the_row_does_not_say_that_the_lock_is_held() {
    let table = table();
    let (one, two) = (table.process(), table.process());
    let mut lock = acquired(&one.locks("one"), LEASE).await;
    sleep(secs(60)).await;
    let theirs = acquired(&two.locks("two"), LEASE).await;
    const REASONS: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
        "CancellationReasons":[{"Code":"ConditionalCheckFailed","Message":"y"},{"Code":"TransactionConflict"}]}"#;
    one.next([Fault::Says(400, REASONS)]);

    let error = lock.commit([counted("o-1")]).await.unwrap_err();

    assert!(error.is_lost(), "{error}");
    assert_eq!(applied(&table, "o-1"), 0);
    theirs.release().await.unwrap();
}
