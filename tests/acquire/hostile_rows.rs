//! Rows and saved locks that are wrong on purpose. No call panics, no caller is blocked, and no lock is
//! taken over.

use crate::LEASE;
use lambda_lock_testkit::{Table, acquired, secs};
use serde_json::json;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn an_error_about_a_row_quotes_little_of_it() {
    let table = Table::new();
    let long = "é".repeat(50_000);
    table.put(json!({
        "key": {"S": "k"}, "ownerName": {"S": long}, "leaseDuration": {"S": long},
        "recordVersionNumber": {"S": long},
    }));

    let error = table.process().locks("me").acquire("k").lease(LEASE).try_once().await.unwrap_err();

    assert!(error.to_string().len() < 1_000, "{} bytes", error.to_string().len());
    assert!(error.to_string().contains("100000 bytes"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_end_far_ahead_in_a_saved_lock_is_not_written_to_the_row() {
    let table = Table::new();
    let (one, two) = (table.process(), table.process());
    let token = acquired(&one.locks("one"), LEASE).await.save();
    let now = one.clock.wall_millis();

    let mut spoilt = serde_json::to_value(token).unwrap();
    spoilt["leaseEndsAt"] = json!(now + 400 * 86_400_000);

    let lock = one.locks("one").resume(serde_json::from_value(spoilt).unwrap()).await.unwrap();

    let ends = table.number("k", "leaseEndsAt");
    assert!(ends <= now + 23_000, "{ends}, which is {} s ahead", (ends - now) / 1000);
    drop(lock.save());

    // So the lock of a dead holder is taken over by the wall clock, as usual.
    sleep(secs(26)).await;
    acquired(&two.locks("two"), LEASE).await.release().await.unwrap();
}
