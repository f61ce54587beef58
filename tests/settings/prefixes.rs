//! A client with a key prefix meets its own rows and no others.

use crate::input::is_invalid;
use lambda_lock::{Error, LockClient, SavedLock};
use lambda_lock_testkit::{Table, acquired, case, counted, granted, peeked, secs};
use std::time::Duration;
use tokio::time::sleep;

const LEASE: Duration = secs(20);

fn prefixed(locks: &LockClient, prefix: &str) -> LockClient {
    locks.prefixed(prefix).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_prefix_that_cannot_work_is_refused() {
    let process = Table::none().process();
    let locks = process.locks("me");
    let long = format!("{}/", "p".repeat(2047));

    for (prefix, names) in [
        ("", "must end with a slash"),
        ("blue", "must end with a slash"),
        ("blue/green", "must end with a slash"),
        ("once/", r#"the part "once/""#),
        ("blue/once/", r#"the part "once/""#),
        ("once/blue/", r#"the part "once/""#),
        (&long, "2048 bytes"),
    ] {
        let _case = case(prefix);
        is_invalid(&locks.prefixed(prefix).map(drop).unwrap_err(), names);
    }
    is_invalid(&prefixed(&locks, "blue/").prefixed("once/").map(drop).unwrap_err(), r#"the part "once/""#);
    is_invalid(&prefixed(&locks, &long[1..]).prefixed("a/").map(drop).unwrap_err(), "2049 bytes");

    for prefix in ["blue/", "/", "a//b/", "twice/", "nonce/", "once-more/", "=6Fnce/", "ü/"] {
        assert_eq!(prefixed(&locks, prefix).key_prefix(), prefix);
    }
    assert_eq!(locks.key_prefix(), "");
}

#[tokio::test(start_paused = true)]
async fn the_row_the_guard_the_saved_lock_and_errors_have_the_whole_key() {
    let table = Table::new();
    let process = table.process();
    let blue = prefixed(&prefixed(&process.locks("me"), "orders/"), "blue/");
    let row = "orders/blue/k";

    let lock = acquired(&blue, LEASE).await;

    assert_eq!(blue.key_prefix(), "orders/blue/");
    assert_eq!((lock.key().key(), lock.to_saved().key()), (row, row.into()));
    assert!(table.row(row).is_some() && table.row("k").is_none());
    assert_eq!(blue.operator().peek("k").await.unwrap().unwrap().holder, lock.owner());
    let held = blue.acquire("k").within(&process.budget(secs(1))).await.unwrap_err();
    assert!(held.is_held() && held.to_string().contains(row), "{held}");

    let saved = lock.save();
    let lock = blue.resume(saved.clone()).await.unwrap();
    lock.release().await.unwrap();
    assert!(table.is_released(row));
    let lost = blue.resume(saved).await.unwrap_err();
    assert!(lost.is_lost() && lost.to_string().contains(row), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn two_clients_with_different_prefixes_and_the_same_key_do_not_meet() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let clients = [&locks, &prefixed(&locks, "blue/"), &prefixed(&locks, "red/")];
    let mut held = Vec::new();
    for client in clients {
        held.push(acquired(client, LEASE).await);
    }

    for (client, row) in clients.into_iter().zip(["k", "blue/k", "red/k"]) {
        let _case = case(row);
        let refused = client.acquire("k").lease(LEASE).try_once().await.unwrap();
        assert_eq!(refused.refused().unwrap().holder, table.attribute(row, "ownerName").unwrap());
    }

    for mut lock in held {
        lock.commit([counted("done")]).await.unwrap();
        lock.release().await.unwrap();
    }
    assert_eq!(table.number("done", "applied"), 3);
}

/// Every call that takes a saved lock.
async fn calls_with(locks: &LockClient, saved: &SavedLock) -> [Error; 4] {
    [
        locks.resume(saved.clone()).await.map(drop).unwrap_err(),
        locks.reclaim(saved.clone()).lease(LEASE).await.map(drop).unwrap_err(),
        locks.release(saved.clone()).await.map(drop).unwrap_err(),
        locks.condition_check(saved).map(drop).unwrap_err(),
    ]
}

#[tokio::test(start_paused = true)]
async fn saved_locks_with_another_prefix_are_refused_without_a_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let blue = prefixed(&locks, "blue/");
    let foreign = [
        acquired(&locks, LEASE).await.save(),
        acquired(&prefixed(&locks, "red/"), LEASE).await.save(),
        acquired(&prefixed(&locks, "blue-green/"), LEASE).await.save(),
    ];
    process.take_sent();

    for saved in &foreign {
        let _case = case(saved.key());
        for error in calls_with(&blue, saved).await {
            is_invalid(&error, r#"does not begin with "blue/", the prefix of this client"#);
        }
    }
    assert!(process.take_sent().is_empty());

    for saved in foreign {
        locks.release(saved).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_prefix_can_go_on_with_the_lock_of_one_that_has_one() {
    let table = Table::new();
    let locks = table.process().locks("me");
    let saved = acquired(&prefixed(&locks, "blue/"), LEASE).await.save();

    let lock = locks.reclaim(saved).lease(LEASE).await.unwrap();
    lock.release().await.unwrap();

    assert!(table.is_released("blue/k"));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_checked_with_its_prefix_and_without_it() {
    let table = Table::new();
    let (process, other) = (table.process(), table.process().locks("other"));
    acquired(&other, LEASE).await.release().await.unwrap();
    let seen = peeked(&other, "k").await;
    let blue = prefixed(&process.locks("me"), "blue/");

    for (key, names) in
        [("", "lock key is empty"), ("once/order-42", r#"begins with "once/""#), (&"k".repeat(2044), "2049 bytes")]
    {
        let _case = case(key.len());
        is_invalid(&blue.acquire(key).lease(LEASE).try_once().await.map(drop).unwrap_err(), names);
        is_invalid(&blue.release_workflow(key, "arn:1").await.unwrap_err(), names);
    }
    // The rows of idempotent work may be looked at, and broken.
    for (key, names) in [("", "lock key is empty"), (&"k".repeat(2044), "2049 bytes")] {
        is_invalid(&blue.operator().peek(key).await.unwrap_err(), names);
        is_invalid(&blue.operator().break_lock(key, &seen, "gone").await.unwrap_err(), names);
    }
    assert!(process.take_sent().is_empty());

    granted(blue.acquire("k".repeat(2043)).lease(LEASE).try_once()).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_one_client_learns_about_the_clock_the_prefixed_client_knows() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let blue = prefixed(&locks, "blue/");
    let lock = acquired(&blue, LEASE).await;
    let _ = lock.save();
    sleep(LEASE + secs(10)).await;
    process.set_date_offset(Some(-3600));
    // Two responses that agree: the wall clock is not used against other holders any more.
    for _ in 0..2 {
        locks.operator().peek("another").await.unwrap();
    }
    process.take_sent();

    let held = blue.acquire("k").lease(LEASE).try_once().await.unwrap();

    assert!(held.refused().is_some(), "a takeover by the wall clock: {held:?}");
}

#[tokio::test(start_paused = true)]
async fn a_prefix_belongs_to_the_partition_key_alone() {
    let table = Table::with_keys(&["key", "sk"]);
    let process = table.process();
    let locks = process.builder().sort_key_attribute("sk").build().unwrap();
    let blue = prefixed(&locks, "blue/");

    let lock = granted(blue.acquire(("customer-7", "invoice-12")).lease(LEASE).try_once()).await;

    assert_eq!(lock.key(), &("blue/customer-7", "invoice-12").into());
    lock.release().await.unwrap();
    assert!(locks.operator().peek(("blue/customer-7", "invoice-12")).await.unwrap().unwrap().released);
}
