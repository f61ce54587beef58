//! All rows of a table, page by page.

use crate::LEASE;
use lambda_lock::{
    ErrorKind, LockKey,
    operator::{List, ListedRow},
};
use lambda_lock_testkit::{Fault, Table, granted};
use serde_json::json;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Reads all pages. Returns what each row is, and how many pages there were.
async fn all(mut list: List) -> (BTreeMap<String, String>, usize) {
    let (mut rows, mut pages) = (BTreeMap::new(), 0);
    while let Some(page) = list.next().await.unwrap() {
        pages += 1;
        for listed in page.rows {
            let what = match listed.row {
                ListedRow::Lock(lock) => format!("{}{}", lock.holder, if lock.released { ", released" } else { "" }),
                ListedRow::Outcome => "outcome".to_owned(),
                ListedRow::WakeItem => "wake item".to_owned(),
                ListedRow::Invalid(error) => error.to_string(),
                other => panic!("{other:?}"),
            };
            assert_eq!(rows.insert(listed.key.to_string(), what), None);
        }
    }
    (rows, pages)
}

#[tokio::test(start_paused = true)]
async fn each_row_is_listed_once_on_pages_of_any_size() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    for n in 0..7 {
        let lock = granted(locks.acquire(format!("k{n}")).lease(LEASE).owner("me").try_once()).await;
        if n % 2 == 0 {
            lock.release().await.unwrap();
        } else {
            let _ = lock.save();
        }
    }
    process.take_sent();
    for (size, pages) in [(1, 8), (3, 3), (7, 2), (1000, 1)] {
        let (rows, read) = all(locks.operator().list().page_size(NonZeroU32::new(size).unwrap())).await;
        assert_eq!(rows.len(), 7);
        assert_eq!((rows["k0"].as_str(), rows["k1"].as_str()), ("me, released", "me"));
        assert!(read <= pages, "{size}: {read}");
    }
    assert!(process.take_operations().iter().all(|operation| operation == "Scan"));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_no_lock_record_is_listed_as_what_it_is() {
    let table = Table::new();
    let locks = table.process().locks("me");
    table.put_java_row("java", "00000000-0000-0000-0000-000000000001", LEASE);
    table.put(json!({ "key": { "S": "broken" }, "ownerName": { "S": "me" }, "leaseDuration": { "S": "a while" },
        "recordVersionNumber": { "S": "1" } }));
    table.put(json!({ "key": { "S": "once/done" }, "recordVersionNumber": { "S": "lo1-x" } }));
    table.put(json!({ "key": { "S": "wake/java/1" }, "taskToken": { "S": "t" } }));

    let (rows, _) = all(locks.operator().list()).await;

    assert_eq!(rows.keys().collect::<Vec<_>>(), ["broken", "java", "once/done", "wake/java/1"]);
    assert!(rows["broken"].contains("leaseDuration"), "{rows:?}");
    assert_eq!((&*rows["once/done"], &*rows["wake/java/1"]), ("outcome", "wake item"));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_prefix_lists_its_own_keys() {
    let table = Table::new();
    let locks = table.process().locks("me");
    for key in ["blue/a", "blue/b", "green/a", "blues"] {
        let _ = granted(locks.acquire(key).lease(LEASE).try_once()).await.save();
    }

    let (rows, _) = all(locks.prefixed("blue/").unwrap().operator().list()).await;

    assert_eq!(rows.keys().collect::<Vec<_>>(), ["blue/a", "blue/b"]);
}

#[tokio::test(start_paused = true)]
async fn keys_with_a_sort_key_are_listed_whole() {
    let table = Table::with_keys(&["key", "sk"]);
    let locks = table.process().builder().sort_key_attribute("sk").build().unwrap();
    for sort_key in ["invoice-1", "invoice-2"] {
        let key = LockKey::new("customer-7", Some(sort_key.to_owned()));
        let _ = granted(locks.acquire(key).lease(LEASE).try_once()).await.save();
    }

    let (rows, _) = all(locks.operator().list()).await;

    assert_eq!(rows.keys().collect::<Vec<_>>(), ["(customer-7, invoice-1)", "(customer-7, invoice-2)"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_could_not_be_read_can_be_asked_for_again() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let _ = granted(locks.acquire("k").lease(LEASE).try_once()).await.save();
    let mut list = locks.operator().list();
    // The SDK asks more than once.
    process.next(vec![Fault::error("AccessDeniedException"); 9]);

    let denied = list.next().await.unwrap_err();
    process.clear();

    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(list.next().await.unwrap().unwrap().rows.len(), 1);
    assert!(list.next().await.unwrap().is_none());
    assert!(list.next().await.unwrap().is_none());
}
