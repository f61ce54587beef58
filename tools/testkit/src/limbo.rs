//! A transaction with which DynamoDB is not done.

use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// After this time a retry lets DynamoDB recover the transaction, as AWS documents with `TransactionInProgressException`.
const RECOVERS_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Limbo {
    pub(crate) until: Instant,
    token: Value,
    items: Vec<Item>,
}

/// The table of an item, and its key, or all of its attributes.
type Item = (Value, Map<String, Value>);

impl Limbo {
    /// A transaction that has just arrived.
    pub(crate) fn of(body: &str) -> Self {
        let body: Value = serde_json::from_str(body).unwrap();
        let (token, until) = (body["ClientRequestToken"].clone(), Instant::now() + RECOVERS_AFTER);
        assert!(token.is_string(), "only a transaction is recovered: {body}");
        Self { until, token, items: written(&body) }
    }

    /// The response to a request that meets this transaction. `None` if it does not.
    pub(crate) fn refuses(&self, operation: &str, body: &str) -> Option<(u16, String)> {
        let body: Value = serde_json::from_str(body).unwrap();
        if !matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems") {
            return None;
        }
        if body["ClientRequestToken"] == self.token {
            return Some(error("TransactionInProgressException", json!({})));
        }
        let conflicts: Vec<bool> =
            written(&body).iter().map(|item| self.items.iter().any(|held| is_same(item, held))).collect();
        if !conflicts.contains(&true) {
            return None;
        }
        if operation != "TransactWriteItems" {
            return Some(error("TransactionConflictException", json!({})));
        }
        let reason = |conflict| json!({ "Code": if conflict { "TransactionConflict" } else { "None" } });
        let reasons: Vec<Value> = conflicts.into_iter().map(reason).collect();
        Some(error("TransactionCanceledException", json!({ "CancellationReasons": reasons })))
    }
}

fn error(code: &str, mut body: Value) -> (u16, String) {
    body["__type"] = json!(format!("com.amazonaws.dynamodb.v20120810#{code}"));
    body["message"] = json!("scripted");
    (400, body.to_string())
}

/// The items that a request writes or checks.
fn written(body: &Value) -> Vec<Item> {
    let writes: Vec<&Value> = match body["TransactItems"].as_array() {
        Some(writes) => writes.iter().filter_map(|write| write.as_object()?.values().next()).collect(),
        None => vec![body],
    };
    let item = |write: &Value| {
        let item = write.get("Key").or_else(|| write.get("Item"))?;
        Some((write["TableName"].clone(), item.as_object()?.clone()))
    };
    writes.into_iter().filter_map(item).collect()
}

/// Whether all attributes of the one, which may be a key, are those of the other.
fn is_same((table, one): &Item, (other_table, other): &Item) -> bool {
    let (key, item) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    table == other_table && key.iter().all(|(name, value)| item.get(name) == Some(value))
}
