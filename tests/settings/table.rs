//! Creating and checking the table.

use lambda_lock_testkit::{Fault, Table};
use serde_json::json;

/// `create_table` on a table that is not a lock table must not switch TTL on, because TTL deletes rows.
#[tokio::test(start_paused = true)]
async fn create_table_does_not_switch_ttl_on_in_another_kind_of_table() {
    let table = Table::with_keys(&["id"]);
    let locks = table.process().builder().ttl_attribute("expiresAt").build().unwrap();

    assert!(locks.create_table().await.unwrap_err().is_table());

    let described = table.call("DescribeTimeToLive", &json!({"TableName": "locks"}));
    let status = described["TimeToLiveDescription"]["TimeToLiveStatus"].as_str().unwrap_or_default().to_owned();
    assert!(!status.starts_with("ENABL"), "TTL was switched on at a table that is no lock table: {status}");
}

/// On AWS, DescribeTable may return ResourceNotFoundException right after CreateTable.
#[tokio::test(start_paused = true)]
async fn a_new_table_that_is_not_described_yet_is_waited_for() {
    let table = Table::none();
    let process = table.process();
    process.next([Fault::None, Fault::error("ResourceNotFoundException")]);

    process.locks("me").create_table().await.unwrap();
}

/// `create_table` promises the error `Table` for a table that does not fit.
#[tokio::test(start_paused = true)]
async fn a_ttl_on_another_attribute_is_an_error_about_the_table() {
    let table = Table::new();
    table.call(
        "UpdateTimeToLive",
        &json!({"TableName": "locks", "TimeToLiveSpecification": {"AttributeName": "other", "Enabled": true}}),
    );
    let process = table.process();
    let locks = process.builder().ttl_attribute("expiresAt").build().unwrap();
    assert!(locks.check_table().await.unwrap_err().is_table());
    process.take_sent();

    let error = locks.create_table().await.unwrap_err();

    // AWS rejects it ("TimeToLive is active on a different AttributeName"), which was once reported as
    // `InvalidRequest`.
    assert_eq!(process.take_counts().get("UpdateTimeToLive"), None);
    assert!(error.is_table() && error.to_string().contains("its TTL attribute is \"other\""), "{error}");
}
