//! Rows and saved locks that are wrong on purpose. No call panics, no caller is blocked, and no lock is
//! taken over.

use crate::LEASE;
use lambda_lock::SavedLock;
use lambda_lock_testkit::{Fault, Table, acquired, case, secs};
use serde_json::json;
use tokio::time::sleep;

const NO_TOKENS: [&str; 7] = [
    "7.5",
    "-1",
    "-3",
    "1E30",
    "18446744073709551615",
    "18446744073709551614",
    "99999999999999999999999999999999999999",
];

/// Returns a table with a free row of ours that has this fencing token.
async fn free_row(token: &str) -> Table {
    let table = Table::new();
    let locks = table.process().locks("before");
    acquired(&locks, LEASE).await.release().await.unwrap();
    sleep(secs(1)).await;
    table.set("k", json!({"fencingToken": {"N": token}}));
    table
}

/// Returns the saved lock with a lease that ends at this time.
fn ending_at(token: &SavedLock, millis: u64) -> SavedLock {
    let mut json = serde_json::to_value(token).unwrap();
    json["leaseEndsAt"] = json!(millis);
    serde_json::from_value(json).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_free_row_whose_token_cannot_grow_is_reported_and_not_held() {
    for token in NO_TOKENS {
        let _case = case(token);
        let table = free_row(token).await;
        let process = table.process();
        let locks = process.locks("me");

        let tried = locks.try_acquire("k").lease(LEASE).await.unwrap_err();

        assert!(tried.is_invalid_record(), "{tried}");
        assert_eq!(tried.invalid_attribute(), Some("fencingToken"));
        assert!(tried.to_string().contains("fencingToken"), "{tried}");
        assert!(table.is_released("k"), "the lock stays taken");
        assert!(process.take_sent().len() <= 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_row_whose_token_cannot_grow_is_reported_also_after_a_lost_answer() {
    for token in NO_TOKENS {
        let _case = case(token);
        let table = free_row(token).await;
        let process = table.process();
        process.next([Fault::AnswerLost]);

        let tried = process.locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();

        assert!(tried.is_invalid_record(), "{tried}");
        assert!(table.is_released("k"), "the lock stays taken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_overflows_is_not_read_as_a_short_one() {
    for lease in [
        "340282366920938463463374607431768211.999us",
        "94522879700260684295381835.9999h",
        "340282366920938463463374607431768211455ns1ns",
        // The smallest product of each unit that does not fit into 128 bits. Without the overflow it is
        // less than an hour.
        "340282366920938463463374607431768212us",
        "340282366920938463463374607431769ms",
        "340282366920938463463374607432s",
        "5671372782015641057722910124m",
        "94522879700260684295381836h",
    ] {
        let _case = case(lease);
        let table = Table::new();
        table.put(json!({
            "key": {"S": "k"}, "ownerName": {"S": "go"}, "leaseDuration": {"S": lease},
            "recordVersionNumber": {"S": "v1"},
        }));
        let before = table.row("k");
        let process = table.process();
        let locks = process.locks("me");

        let error = locks.acquire("k").within(&process.budget(secs(10))).await.unwrap_err();

        assert!(error.is_invalid_record(), "{error}");
        assert_eq!(table.row("k"), before);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_about_a_row_quotes_little_of_it() {
    let table = Table::new();
    let long = "é".repeat(50_000);
    table.put(json!({
        "key": {"S": "k"}, "ownerName": {"S": long}, "leaseDuration": {"S": long},
        "recordVersionNumber": {"S": long},
    }));

    let error = table.process().locks("me").try_acquire("k").lease(LEASE).await.unwrap_err();

    assert!(error.to_string().len() < 1_000, "{} bytes", error.to_string().len());
    assert!(error.to_string().contains("100000 bytes"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_end_far_ahead_in_a_saved_lock_is_not_written_to_the_row() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = acquired(&one.locks("one"), LEASE).await.save();
    let now = one.clock.wall_millis();

    let lock = one.locks("one").resume(ending_at(&token, now + 400 * 86_400_000)).await.unwrap();

    let ends = table.number("k", "leaseEndsAt");
    assert!(ends <= now + 23_000, "{ends}, which is {} s ahead", (ends - now) / 1000);
    drop(lock.save());

    // So the lock of a dead holder is taken over by the wall clock, as usual.
    sleep(secs(26)).await;
    acquired(&two.locks("two"), LEASE).await.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_earlier_end_in_a_saved_lock_does_not_shorten_the_lease() {
    let table = Table::new();
    let process = table.process();
    let lock = acquired(&process.locks("me"), LEASE).await;
    let ends = table.attribute("k", "leaseEndsAt");

    let copy = process.locks("me").resume(ending_at(&lock.to_saved(), 0)).await.unwrap();

    assert!(table.attribute("k", "leaseEndsAt") >= ends);
    let _ = copy.save();
    lock.release().await.unwrap();
}
