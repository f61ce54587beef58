//! Free locks are granted together by one transaction.

use crate::{BELIEVED, LEASE, acquired, conflict, held_by_another, operations, released, tokens};
use lambda_lock::{ErrorKind, ReleaseAllOutcome};
use lambda_lock_testkit::{Fault, ROUND_TRIP, Table, granted, secs};
use serde_json::json;
use std::collections::BTreeMap;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn free_locks_are_granted_by_one_request_with_one_token_and_released_one_by_one() {
    let table = Table::new();
    let process = table.process();
    let set = acquired(&process.locks("me"), ["b", "a", "c"]).await;

    assert_eq!(operations(&process), ["TransactWriteItems"]);
    assert_eq!(set.keys().map(|key| key.key()).collect::<Vec<_>>(), ["b", "a", "c"]);
    assert!(set.owner().starts_with("me/"));
    assert_eq!(set.remaining(), BELIEVED - ROUND_TRIP);
    assert_eq!(tokens(&table, &["a", "b", "c"]), [set.fencing_token().unwrap(); 3]);
    let versions: Vec<_> = ["a", "b", "c"].map(|key| table.attribute(key, "recordVersionNumber")).into();
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
    let ends_at = table.number("a", "leaseEndsAt");
    let since = set.lease_ends_at().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_millis(), u128::from(ends_at));

    assert_eq!(set.release().await.unwrap(), ReleaseAllOutcome::Released);
    assert_eq!(operations(&process), ["UpdateItem"; 3]);
    assert_eq!(released(&table, &["a", "b", "c"]), [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn locks_that_were_held_before_are_granted_with_a_larger_token() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let first = acquired(&locks, ["a", "b"]).await;
    let token = first.fencing_token().unwrap();
    first.release().await.unwrap();
    let single = granted(locks.acquire("a").lease(LEASE).try_once()).await;
    assert_eq!(single.fencing_token(), token + 1);
    single.release().await.unwrap();
    sleep(secs(1)).await;
    process.take_sent();

    let second = acquired(&locks, ["a", "b", "new"]).await;

    assert_eq!(operations(&process), ["TransactWriteItems"], "the clock is past all tokens");
    let second_token = second.fencing_token().unwrap();
    assert!(second_token > token + 1);
    assert_eq!(tokens(&table, &["a", "b", "new"]), [second_token; 3]);
    second.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_row_that_no_larger_token_can_follow_is_reported_and_nothing_is_written() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    acquired(&locks, ["a", "b"]).await.release().await.unwrap();
    for token in [u64::MAX - 1, u64::MAX] {
        table.set("b", json!({"fencingToken": {"N": token.to_string()}}));
        let before = table.row("a");
        process.take_sent();

        let error = locks.acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap_err();

        assert!(error.kind() == ErrorKind::InvalidRecord && error.to_string().contains("the row key=\"b\""), "{error}");
        assert_eq!(error.invalid_attribute(), Some("fencingToken"));
        assert_eq!(operations(&process), ["TransactWriteItems"]);
        assert_eq!(table.row("a"), before);
    }
}

#[tokio::test(start_paused = true)]
async fn dead_holders_and_released_rows_of_other_clients_are_replaced() {
    let table = Table::new();
    let process = table.process();
    std::mem::forget(held_by_another(&table, "a").await);
    table.put_java_row("b", "2a8c", secs(20));
    table.set("b", json!({"isReleased": {"S": "1"}}));
    sleep(secs(100)).await;

    let set = acquired(&process.locks("me"), ["a", "b"]).await;

    assert_eq!(operations(&process), ["TransactWriteItems"; 2], "the first one brings the row of the other client");
    assert_eq!(table.attribute("b", "ownerName").unwrap(), set.owner());
    assert_eq!(released(&table, &["a", "b"]), [false; 2]);
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn additional_attributes_of_earlier_grants_are_removed() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    granted(locks.acquire("a").lease(LEASE).attribute("job", "x").try_once()).await.release().await.unwrap();

    acquired(&locks, ["a", "b"]).await.release().await.unwrap();

    assert_eq!((table.attribute("a", "job"), table.attribute("a", "attributeNames")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_workflow_is_written_to_each_row_and_released_from_each() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let request = locks.acquire_all(["a", "b"]).lease(LEASE).workflow("arn:1").owner("execution").try_once();
    std::mem::forget(request.await.unwrap().granted().unwrap());
    assert_eq!(table.attribute("a", "workflow").unwrap(), "arn:1");

    for key in ["a", "b"] {
        locks.release_workflow(key, "arn:1").await.unwrap();
    }
    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_prefix_puts_it_before_each_key() {
    let table = Table::new();
    let locks = table.process().locks("me").prefixed("blue/").unwrap();
    let set = acquired(&locks, ["a", "b"]).await;
    assert_eq!(set.keys().map(|key| key.key()).collect::<Vec<_>>(), ["blue/a", "blue/b"]);
    assert!(!table.is_released("blue/a"));
    set.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn single_locks_are_made_of_a_set() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let set = acquired(&locks, ["a", "b"]).await;
    let token = set.fencing_token().unwrap();
    let mut singles: BTreeMap<_, _> =
        set.into_locks().into_iter().map(|lock| (lock.key().key().to_owned(), lock)).collect();
    let a = singles.remove("a").unwrap();
    assert_eq!((a.fencing_token(), a.data()), (token, None));
    a.release().await.unwrap();
    let mut b = singles.remove("b").unwrap();
    b.checkpoint().await.unwrap();
    assert_eq!(released(&table, &["a", "b"]), [true, false]);
    b.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_a_takeover_is_refused_after_the_holder_has_released() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let first = locks.acquire_all(["a", "b"]).lease(LEASE).owner("task").try_once().await.unwrap().granted().unwrap();
    process.take_sent();
    // The first request shows the rows. Each takeover meets another transaction.
    process.next([Fault::None].into_iter().chain((0..60).map(|_| conflict())));
    let second = locks.acquire_all(["a", "b"]).lease(LEASE).owner("task").reclaim_own().try_once().await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Unavailable, "{second:?}");
    let copy = process.take_sent().remove(1);
    process.clear();
    first.release().await.unwrap();

    assert!(!table.replay(&copy));

    assert_eq!(released(&table, &["a", "b"]), [true; 2]);
}

#[tokio::test(start_paused = true)]
async fn a_set_in_order_has_the_token_of_each_of_its_keys_as_it_names_them() {
    let table = Table::new();
    let process = table.process();
    let plain = process.locks("me");
    for _ in 0..5 {
        granted(plain.acquire("blue/blue/x").lease(secs(5)).try_once()).await.release().await.unwrap();
    }
    let locks = plain.prefixed("blue/").unwrap();
    let budget = process.budget(secs(30)).reserve(secs(0));
    let set = locks.acquire_all(["x", "blue/x", "y"]).within(&budget).in_order().await.unwrap();

    for key in set.keys() {
        assert_eq!(set.fencing_token_of(key), Some(table.number(key.key(), "fencingToken")), "{key}");
    }
    // Never that of another key, in whatever way the key is written.
    assert_eq!(["x", "y", "green/x", "blue/blue/blue/x"].map(|key| set.fencing_token_of(key)), [None; 4]);
    set.release().await.unwrap();
}
