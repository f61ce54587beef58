//! Full: each place was seen held.

use crate::{LEASE, granted, held_by_others, looks};
use lambda_lock::{ErrorKind, Lock, Refusal, Tried};
use lambda_lock_testkit::{Fault, Table, case, millis, secs};
use serde_json::json;
use tokio::time::sleep;

fn holders(full: Tried<Lock, Vec<Refusal>>) -> Vec<Refusal> {
    match full {
        Tried::Refused(blocked) => blocked,
        Tried::Granted(lock) => panic!("granted: {lock:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_names_all_holders_after_a_look_at_all_places() {
    for places in [1, 3, 12, 250] {
        let _case = case(format!("{places} places"));
        let table = Table::new();
        held_by_others(&table, 0..places).await;
        let process = table.process();
        let locks = process.locks("me");

        let full = holders(locks.semaphore("gateway", places as u32).acquire().lease(LEASE).try_once().await.unwrap());

        assert_eq!(full.len(), places);
        let expected = match places {
            1 | 3 => vec![places],
            12 => vec![5, 12],
            _ => vec![5, 100, 100, 50],
        };
        assert_eq!(looks(&process), expected);
        let writes = process.sent().iter().filter(|sent| sent.operation == "UpdateItem").count();
        assert_eq!(writes, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_place_is_never_the_one_that_is_free_first() {
    let table = Table::new();
    let other = table.process().locks("other");
    for (key, lease) in [("gateway/0", secs(600)), ("gateway/1", secs(60))] {
        let _ = other.acquire(key).lease(lease).try_once().await.unwrap().granted().unwrap().save();
    }
    let process = table.process();
    let locks = process.locks("me");
    let refused = async || {
        let budget = process.budget(secs(1)).reserve(secs(0));
        locks.semaphore("gateway", 2).acquire().within(&budget).await.unwrap_err()
    };

    assert_eq!(refused().await.refusal().unwrap().key.key(), "gateway/1", "its lease ends first");

    locks.operator().freeze("gateway/1", "a rebuild").await.unwrap();
    let error = refused().await;
    assert_eq!(error.refusal().unwrap().key.key(), "gateway/0", "{error}");
    assert!(
        error.to_string().starts_with("the semaphore gateway is full: all of its 2 places are held: retry in at most"),
        "{error}"
    );

    // Of none of them anybody knows when it can be had.
    locks.operator().freeze("gateway/0", "a rebuild").await.unwrap();
    let text = refused().await.to_string();
    assert!(
        text.ends_with("are held, and the first one is frozen by an operator (\"a rebuild\"): retry when it is thawed"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_error_counts_places_that_are_held_and_not_rows_that_are_no_lock_record() {
    let table = Table::new();
    held_by_others(&table, 0..3).await;
    table.set("gateway/1", json!({"fencingToken": {"S": "none"}}));
    let process = table.process();
    let budget = process.budget(secs(1)).reserve(secs(0));
    let locks = process.locks("me");

    let error = locks.semaphore("gateway", 3).acquire().within(&budget).await.unwrap_err();

    let expected = "the semaphore gateway is full: 2 of its 3 places are held, and the others cannot be used: retry";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_error_names_the_semaphore_and_the_place_that_can_be_free_first() {
    let table = Table::new();
    let other = table.process().locks("other");
    for lease in [secs(60), secs(9), secs(30)] {
        std::mem::forget(granted(other.semaphore("gateway", 3).acquire().lease(lease).try_once()).await);
    }
    let process = table.process();
    let budget = process.budget(secs(1)).reserve(secs(0));
    let error = process.locks("me").semaphore("gateway", 3).acquire().within(&budget).await.unwrap_err();

    assert!(error.is_held() && error.refusals().len() == 3, "{error:?}");
    assert!(error.refusal().unwrap().retry_after < secs(11), "{error}");
    assert!(error.to_string().starts_with("the semaphore gateway is full: all of its 3 places are held"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_single_free_place_among_many_is_found_before_it_says_full() {
    for free in [0, 7, 149] {
        let table = Table::new();
        held_by_others(&table, (0..150).filter(|place| *place != free)).await;
        let lock =
            granted(table.process().locks("me").semaphore("gateway", 150).acquire().lease(LEASE).try_once()).await;
        assert_eq!(lock.place().unwrap(), free);
        lock.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_seen_is_not_held() {
    let unprocessed = json!({
        "Responses": {"locks": []},
        "UnprocessedKeys": {"locks": {"ConsistentRead": true, "Keys": [
            {"key": {"S": "gateway/0"}}, {"key": {"S": "gateway/1"}}, {"key": {"S": "gateway/2"}},
        ]}},
    });
    let unprocessed = Fault::Says(200, Box::leak(unprocessed.to_string().into_boxed_str()));
    for fault in [unprocessed, Fault::throttled(), Fault::BlackHole] {
        let _case = case(format!("{fault:?}"));
        let table = Table::new();
        held_by_others(&table, 0..3).await;
        let process = table.process();
        process.next([vec![Fault::None], vec![fault; 200]].concat());
        let budget = process.budget(secs(2)).reserve(secs(0));
        let error = process.locks("me").semaphore("gateway", 3).acquire().within(&budget).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable || error.is_unknown(), "{error:?}");
        assert!(error.refusals().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn observations_of_an_earlier_call_count() {
    let table = Table::new();
    held_by_others(&table, 0..2).await;
    let locks = table.process().builder().without_wall_clock_takeover().build().unwrap();
    let gateway = locks.semaphore("gateway", 2);
    let seen = holders(gateway.acquire().lease(LEASE).try_once().await.unwrap());
    sleep(secs(100)).await;
    holders(gateway.acquire().lease(LEASE).try_once().await.unwrap());
    let seen = seen.into_iter().map(|one| (one.key, one.observation.and_waited(secs(100))));
    let lock = granted(gateway.acquire().lease(LEASE).observations(seen).try_once()).await;
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_over_looks_until_a_holder_is_dead() {
    let table = Table::new();
    held_by_others(&table, 0..2).await;
    let process = table.process();
    let locks = process.builder().without_wall_clock_takeover().build().unwrap();
    let began = tokio::time::Instant::now();
    let budget = process.budget(secs(100)).reserve(secs(0));
    let lock = locks.semaphore("gateway", 2).acquire().within(&budget).await.unwrap();
    assert!(began.elapsed() > secs(60) && began.elapsed() < secs(65), "{:?}", began.elapsed());
    lock.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalid_calls_send_no_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let long = "x".repeat(2045);
    for (name, error, text) in [
        (
            "none",
            locks.semaphore("gateway", 0).acquire().lease(LEASE).try_once().await.unwrap_err(),
            "1 to 1000 places, but 0",
        ),
        ("many", locks.semaphore("gateway", 1001).acquire().lease(LEASE).try_once().await.unwrap_err(), "but 1001"),
        ("long", locks.semaphore(long.as_str(), 1000).acquire().lease(LEASE).try_once().await.unwrap_err(), "2048"),
        ("once", locks.semaphore("once/x", 2).acquire().lease(LEASE).try_once().await.unwrap_err(), "once/"),
        ("budget", locks.semaphore("gateway", 2).acquire().lease(LEASE).await.unwrap_err(), "budget"),
        (
            "nobody",
            locks.semaphore("gateway", 2).acquire().lease(LEASE).reclaim_own().try_once().await.unwrap_err(),
            "owner",
        ),
        ("peek", locks.semaphore("gateway", 0).peek().await.unwrap_err(), "1 to 1000"),
    ] {
        let _case = case(name);
        assert!(error.kind() == ErrorKind::InvalidRequest && error.to_string().contains(text), "{error:?}");
    }
    assert!(process.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_looks_when_the_first_of_the_holders_can_be_dead() {
    for lease in 3..13 {
        let _case = case(format!("a lease of {lease} s"));
        let table = Table::new();
        let other = table.process().locks("other");
        for (place, lease) in [("gate/0", secs(600)), ("gate/1", secs(lease))] {
            lambda_lock_testkit::granted(other.acquire(place).lease(lease).try_once()).await.save();
        }
        let process = table.process();
        let locks = process.locks("me");
        let began = tokio::time::Instant::now();

        let budget = process.budget(secs(60)).reserve(secs(0));
        let lock = locks.semaphore("gate", 2).acquire().within(&budget).await.unwrap();

        // The lease, how much slower the holder's clock may run, and a little jitter.
        let late = began.elapsed().checked_sub(secs(lease).mul_f64(1.05)).unwrap();
        assert!(late < millis(50), "{late:?}");
        lock.release().await.unwrap();
    }
}
