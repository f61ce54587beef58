//! The number of places changes, places are frozen, and all are read.

use crate::{LEASE, granted};
use lambda_lock::Tried;
use lambda_lock_testkit::{Table, secs};
use std::collections::BTreeSet;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn more_places_count_at_once_and_fewer_end_by_themselves() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(granted(locks.semaphore("gateway", 3).acquire().lease(LEASE).try_once()).await);
    }
    held.push(granted(locks.semaphore("gateway", 4).acquire().lease(LEASE).try_once()).await);
    assert_eq!(held[3].place().unwrap(), 3);
    let full = locks.semaphore("gateway", 2).acquire().lease(LEASE).try_once().await.unwrap();
    assert!(matches!(full, Tried::Refused(holders) if holders.len() == 2));
    for lock in held {
        lock.release().await.unwrap();
    }
    let places: BTreeSet<_> = {
        let one = granted(locks.semaphore("gateway", 2).acquire().lease(LEASE).try_once()).await;
        let two = granted(locks.semaphore("gateway", 2).acquire().lease(LEASE).try_once()).await;
        [one, two].map(|lock| lock.save().key().key().to_owned()).into()
    };
    assert_eq!(places, BTreeSet::from(["gateway/0".to_owned(), "gateway/1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_place_is_nobodys_until_it_is_thawed() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let gateway = locks.semaphore("gateway", 2);
    locks.operator().freeze("gateway/1", "one place from now on").await.unwrap();
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    assert_eq!(lock.place().unwrap(), 0);
    let tried = gateway.acquire().lease(LEASE).try_once().await.unwrap();
    let full = tried.refused().unwrap();
    let reasons: Vec<_> = full.iter().map(|refusal| refusal.freeze_reason.as_deref()).collect();
    assert_eq!(reasons, [None, Some("one place from now on")]);
    sleep(secs(360 * 24 * 3600)).await;
    let late = granted(table.process().locks("late").semaphore("gateway", 2).acquire().lease(LEASE).try_once()).await;
    assert_eq!(late.place().unwrap(), 0, "only the dead holder's place");
    late.release().await.unwrap();
    lock.save();

    locks.operator().thaw("gateway/1").await.unwrap();

    let held = granted(gateway.acquire().lease(LEASE).try_once()).await;
    let other = granted(gateway.acquire().lease(LEASE).try_once()).await;
    held.release().await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_a_place_that_is_frozen_works_to_its_end_and_nobody_follows() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let gateway = locks.semaphore("gateway", 1);
    let mut lock = granted(gateway.acquire().lease(LEASE).try_once()).await;

    locks.operator().freeze("gateway/0", "no place from now on").await.unwrap();

    lock.checkpoint().await.unwrap();
    lock.release().await.unwrap();
    sleep(secs(3600)).await;
    let tried = gateway.acquire().lease(LEASE).try_once().await.unwrap();
    let full = tried.refused().unwrap();
    assert_eq!(full[0].freeze_reason.as_deref(), Some("no place from now on"));
}

#[tokio::test(start_paused = true)]
async fn a_peek_shows_all_places() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let gateway = locks.semaphore("gateway", 130);
    let lock = granted(gateway.acquire().lease(LEASE).owner("somebody").try_once()).await;
    process.take_sent();
    let places = gateway.peek().await.unwrap();
    assert_eq!(process.take_operations(), ["BatchGetItem"; 2]);
    assert_eq!(places.len(), 130);
    assert_eq!(places[lock.place().unwrap()].as_ref().unwrap().holder, "somebody");
    assert_eq!(places.iter().flatten().count(), 1);
    lock.release().await.unwrap();
}
