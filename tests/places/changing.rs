//! The number of places changes, places are closed, and all are read.

use crate::{LEASE, granted};
use lambda_lock::{ReleaseOutcome, Tried};
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
async fn a_closed_place_is_nobodys_until_it_is_opened_again() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let gateway = locks.semaphore("gateway", 2);
    gateway.close(1, &process.budget(secs(9))).await.unwrap();
    assert_eq!(table.attribute("gateway/1", "ownerName").unwrap(), "closed");
    gateway.close(1, &process.budget(secs(9))).await.unwrap();
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    assert_eq!(lock.place().unwrap(), 0);
    sleep(secs(360 * 24 * 3600)).await;
    let full = table.process().locks("late").semaphore("gateway", 2).acquire().lease(LEASE).try_once().await.unwrap();
    let late = full.granted().unwrap();
    assert_eq!(late.place().unwrap(), 0, "only the dead holder's place");
    late.release().await.unwrap();
    lock.save();

    assert_eq!(gateway.reopen(1).await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(table.attribute("gateway/1", "isReleased").unwrap(), "1");
    let held = granted(gateway.acquire().lease(LEASE).try_once()).await;
    let other = granted(gateway.acquire().lease(LEASE).try_once()).await;
    assert_eq!(gateway.reopen(1).await.unwrap(), ReleaseOutcome::AlreadyGone, "a caller's place is left alone");
    held.release().await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_the_holder() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let gateway = locks.semaphore("gateway", 1);
    let lock = granted(gateway.acquire().lease(LEASE).try_once()).await;
    let busy = gateway.close(0, &process.budget(secs(2)).reserve(secs(0))).await.unwrap_err();
    assert!(busy.is_held(), "{busy:?}");
    let budget = process.budget(secs(9)).reserve(secs(0));
    let (closed, released) = tokio::join!(gateway.close(0, &budget), lock.release());
    released.unwrap();
    closed.unwrap();
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
