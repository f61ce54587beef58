//! What is refused before any request, and what DynamoDB rejects.

use crate::{LEASE, operations};
use lambda_lock::ErrorKind;
use lambda_lock_testkit::{Fault, Table, case, secs};

#[tokio::test(start_paused = true)]
async fn invalid_calls_send_no_request() {
    let table = Table::new();
    let process = table.process();
    let locks = process.locks("me");
    let many: Vec<String> = (0..26).map(|index| format!("k-{index}")).collect();
    let none: [&str; 0] = [];
    for (name, error, text) in [
        ("none", locks.acquire_all(none).lease(LEASE).try_once().await.unwrap_err(), "1 to 25 locks, but 0"),
        ("too many", locks.acquire_all(many.clone()).lease(LEASE).try_once().await.unwrap_err(), "but 26 keys"),
        (
            "twice",
            locks.acquire_all(["a", "b", "a"]).lease(LEASE).try_once().await.unwrap_err(),
            "the key a was given twice",
        ),
        ("once", locks.acquire_all(["a", "once/b"]).lease(LEASE).try_once().await.unwrap_err(), "once/"),
        ("empty", locks.acquire_all(["a", ""]).lease(LEASE).try_once().await.unwrap_err(), "empty"),
        ("nobody", locks.acquire_all(["a"]).lease(LEASE).reclaim_own().try_once().await.unwrap_err(), ".owner(…)"),
        ("no lease", locks.acquire_all(["a", "b"]).try_once().await.unwrap_err(), "the locks a and b"),
        ("no budget", locks.acquire_all(["a", "b"]).lease(LEASE).await.unwrap_err(), "try_once"),
        (
            "in order",
            locks.acquire_all(["a", "b", "b"]).within(&process.budget(secs(9))).in_order().await.unwrap_err(),
            "twice",
        ),
        ("in order", locks.acquire_all(["a", "b"]).lease(LEASE).in_order().await.unwrap_err(), "budget"),
    ] {
        let _case = case(name);
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(operations(&process).is_empty());
    let most: Vec<String> = many.into_iter().take(25).collect();
    let set = locks.acquire_all(most).lease(LEASE).try_once().await.unwrap().granted().unwrap();
    assert_eq!(operations(&process), ["TransactWriteItems"]);
    set.release().await.unwrap();
    assert_eq!(operations(&process).len(), 25);
}

#[tokio::test(start_paused = true)]
async fn a_table_without_transactions_is_an_error_that_names_the_other_way() {
    let table = Table::new();
    let process = table.process();
    let body = r#"{"__type": "ValidationException", "message": "Transactions are not supported on this table"}"#;
    process.next([Fault::Says(400, body)]);

    let error = process.locks("me").acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error:?}");
    assert!(error.to_string().contains("not supported") && error.to_string().contains(".in_order()"), "{error}");
    assert_eq!(operations(&process), ["TransactWriteItems", "BatchGetItem"], "the rows could be the reason");
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_and_missing_permissions_are_reported_at_once() {
    let table = Table::new();
    let process = table.process();
    for code in ["ResourceNotFoundException", "AccessDeniedException"] {
        process.next([Fault::error(code)]);
        let error = process.locks("me").acquire_all(["a", "b"]).lease(LEASE).try_once().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Table || error.kind() == ErrorKind::Denied, "{error:?}");
        assert!(error.to_string().contains("the locks a and b"), "{error}");
        assert_eq!(operations(&process), ["TransactWriteItems"]);
    }
}
