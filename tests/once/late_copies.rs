//! The network delivers a request twice.

use crate::LEASE;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use lambda_lock::once::Started;
use lambda_lock_testkit::{Fault, Process, Table, millis, until};
use serde_json::Value;
use tokio::time::sleep;

fn written(key: &str) -> TransactWriteItem {
    let put = Put::builder().table_name("locks").item("key", AttributeValue::S(key.to_owned())).build().unwrap();
    TransactWriteItem::builder().put(put).build()
}

/// Another transaction has one of the caller's items. The lock's own write has no error.
const CONFLICT: &str = r#"{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x",
    "CancellationReasons":[{"Code":"TransactionConflict","Message":"Transaction is ongoing for the item"},
    {"Code":"None"}]}"#;

/// The next request is refused temporarily. The network delivers a second copy of it 10 ms after the first one. That
/// is before the caller repeats the request, after the response at 4 ms and a pause of 12 to 25 ms.
async fn refused_for_now_and_delivered_twice(process: Process, table: Table, refusal: Fault) {
    process.take_sent();
    process.next([refusal]);
    tokio::spawn(async move {
        until("a request is sent", || !process.sent().is_empty()).await;
        let sent = process.sent().remove(0);
        sleep(millis(9)).await;
        assert!(table.replay(&sent), "the copy was refused");
    });
}

/// The same for the result of idempotent work, alone and with effects.
#[tokio::test(start_paused = true)]
async fn a_result_that_was_throttled_first_and_stored_by_a_copy_is_not_reported_as_lost() {
    for effects in [false, true] {
        let table = Table::new();
        let process = table.process();
        let locks = process.locks("me");
        let begun = locks.once("w").lease(LEASE).start::<Value>().await;
        let Ok(Started::Attempt(attempt)) = begun else { panic!("{begun:?}") };
        let refusal = if effects { Fault::Says(400, CONFLICT) } else { Fault::throttled() };
        refused_for_now_and_delivered_twice(process.clone(), table.clone(), refusal).await;

        let writes = if effects { vec![written("effect")] } else { Vec::new() };
        let stored = attempt.complete_with(&1, writes).await;

        assert_eq!(table.attribute("once/w", "onceState").as_deref(), Some("done"));
        assert!(stored.is_ok(), "effects: {effects}; stored by this attempt, and said: {}", stored.unwrap_err());
    }
}
