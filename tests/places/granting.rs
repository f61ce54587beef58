//! A free place is granted as any lock.

use crate::{LEASE, granted, held_by_others, looks};
use lambda_lock::{Error, ErrorKind, Tried};
use lambda_lock_testkit::{Table, counted, secs};
use serde_json::json;
use std::collections::BTreeSet;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_free_place_costs_one_request_and_is_an_ordinary_lock() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let gateway = locks.semaphore("gateway", 5);

    let mut lock = granted(gateway.acquire().lease(LEASE).data("payload").attribute("job", "x").try_once()).await;

    assert_eq!(process.take_operations(), ["UpdateItem"]);
    assert_eq!(lock.key().key(), format!("gateway/{}", lock.place().unwrap()));
    let key = lock.key().key().to_owned();
    assert_eq!(table.number(&key, "fencingToken"), lock.fencing_token());
    assert_eq!((lock.data(), table.attribute(&key, "job").unwrap()), (Some(&b"payload"[..]), "x".to_owned()));
    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    assert!(table.is_released(&key));
}

#[tokio::test(start_paused = true)]
async fn never_more_callers_than_places_and_each_has_its_own() {
    let table = Table::new();
    let mut held = Vec::new();
    for _ in 0..4 {
        let process = table.process();
        held.push(granted(process.locks("me").semaphore("gateway", 4).acquire().lease(LEASE).try_once()).await);
        assert!(process.sent().len() <= 3, "{:?}", process.take_operations());
    }
    let places: BTreeSet<_> = held.iter().map(|lock| lock.place().unwrap()).collect();
    assert_eq!(places, BTreeSet::from([0, 1, 2, 3]));
    let fifth = table.process().locks("me").semaphore("gateway", 4).acquire().lease(LEASE).try_once().await.unwrap();
    assert!(matches!(fifth, Tried::Refused(_)));
    assert_eq!(table.row("gateway/4"), None, "there is no such place");
    for lock in held {
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_place_that_was_given_back_last_is_tried_first() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let gateway = locks.semaphore("gateway", 50);
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    let place = lock.place().unwrap();
    lock.release().await.unwrap();
    for _ in 0..10 {
        let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
        assert_eq!(lock.place().unwrap(), place);
        lock.release().await.unwrap();
    }
    let worked = gateway
        .acquire()
        .within(&process.budget(secs(9)))
        .await
        .unwrap()
        .run(async |lock| Ok::<_, Error>(lock.place().unwrap()));
    assert_eq!(worked.await.unwrap(), place);
    assert!(table.is_released(&format!("gateway/{place}")));
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    assert_eq!(lock.place().unwrap(), place, "after `run` too");
    lock.commit_and_release([counted("o-1")]).await.unwrap();
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    assert_eq!(lock.place().unwrap(), place, "after a commit too");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_held_place_leads_to_a_look_at_five_and_a_free_one_of_them() {
    let table = Table::new();
    for _ in 0..20 {
        held_by_others(
            &table,
            (0..20).filter(|place| place % 2 == 0 && table.row(&format!("gateway/{place}")).is_none()),
        )
        .await;
        let process = table.process();
        let lock = granted(process.locks("me").semaphore("gateway", 20).acquire().lease(LEASE).try_once()).await;
        assert_eq!(lock.place().unwrap() % 2, 1);
        let looks = looks(&process);
        assert!(looks.iter().all(|look| *look == 5 || *look == 20), "{looks:?}");
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_place_is_taken_over() {
    let table = Table::new();
    held_by_others(&table, 0..3).await;
    sleep(secs(100)).await;
    let process = table.process();
    let lock = granted(process.locks("me").semaphore("gateway", 3).acquire().lease(LEASE).try_once()).await;
    assert_eq!(process.take_operations(), ["UpdateItem"], "the wall clock proves it within the first request");
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_retried_task_finds_its_own_place_and_takes_no_second_one() {
    let table = Table::new();
    held_by_others(&table, [0, 2]).await;
    let locks = table.process().locks("me");
    let gateway = locks.semaphore("gateway", 6);
    let first = granted(gateway.acquire().lease(LEASE).owner("task-1").reclaim_own().try_once()).await;
    let (place, token) = (first.place().unwrap(), first.fencing_token());
    std::mem::forget(first);

    let process = table.process();
    let locks = process.locks("again");
    let again =
        granted(locks.semaphore("gateway", 6).acquire().lease(LEASE).owner("task-1").reclaim_own().try_once()).await;

    assert_eq!(again.place().unwrap(), place);
    assert!(again.fencing_token() > token);
    assert_eq!(process.take_operations(), ["BatchGetItem", "UpdateItem"]);
    let other =
        granted(locks.semaphore("gateway", 6).acquire().lease(LEASE).owner("task-2").reclaim_own().try_once()).await;
    assert_ne!(other.place().unwrap(), place);
    other.release().await.unwrap();
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_places_of_a_client_with_a_prefix_have_it() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me").prefixed("blue/").unwrap();
    let one = granted(locks.semaphore("printer", 2).acquire().lease(LEASE).try_once()).await;
    let two = granted(locks.semaphore("printer", 2).acquire().lease(LEASE).try_once()).await;
    let keys = BTreeSet::from([one.key().key().to_owned(), two.key().key().to_owned()]);
    assert_eq!(keys, BTreeSet::from(["blue/printer/0".to_owned(), "blue/printer/1".to_owned()]));
    assert_eq!(one.place().unwrap() + two.place().unwrap(), 1);
    two.release().await.unwrap();
    let budget = process.budget(secs(9));
    let three = locks.semaphore("printer", 2).acquire().within(&budget).await.unwrap();
    three.release().await.unwrap();
    one.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_gets_the_first_place_that_is_free() {
    let table = Table::new();
    let other = table.process().locks("other");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(granted(other.semaphore("gateway", 3).acquire().lease(secs(60)).try_once()).await);
    }
    let process = table.process();
    let locks = process.locks("me");
    let gateway = locks.semaphore("gateway", 3);
    let began = tokio::time::Instant::now();
    let budget = process.budget(secs(30)).reserve(secs(0));

    let (lock, ()) = tokio::join!(gateway.acquire().within(&budget), async {
        sleep(secs(3)).await;
        others.remove(1).release().await.unwrap();
    });
    let lock = lock.unwrap();

    assert!(began.elapsed() >= secs(3) && began.elapsed() < secs(4), "{:?}", began.elapsed());
    let writes = process.sent().iter().filter(|sent| sent.operation == "UpdateItem").count();
    assert_eq!(writes, 2, "while it waits it only reads");
    lock.release().await.unwrap();
    for lock in others {
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_lock_record_is_nobodys_place() {
    let table = Table::new();
    table.put(json!({"key": {"S": "gateway/0"}, "title": {"S": "not a lock"}}));
    let locks = table.process().locks("me");
    let gateway = locks.semaphore("gateway", 2);
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    assert_eq!(lock.place().unwrap(), 1);
    let Tried::Refused(holders) =
        table.process().locks("two").semaphore("gateway", 2).acquire().lease(LEASE).try_once().await.unwrap()
    else {
        panic!("nothing is free")
    };
    assert_eq!(holders.len(), 1);
    lock.release().await.unwrap();
    let error =
        table.process().locks("me").semaphore("gateway", 1).acquire().lease(LEASE).try_once().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRecord, "{error:?}");
}
