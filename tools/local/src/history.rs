//! All changes of a table's items, in order, read from the table's stream.

use crate::aws_json;
use crate::expansion::Expansion;
use anyhow::Context;
use serde_json::{Value, json};

/// One change of one item, in DynamoDB's JSON.
#[derive(Clone, Debug)]
pub struct Change {
    /// The item before the change. Null if there was none.
    pub before: Value,
    /// The item after the change. Null if it was deleted.
    pub after: Value,
}

impl Expansion {
    /// Returns the same template with a stream on this table, for [`history`].
    #[must_use]
    pub fn with_history(&self, table: &str) -> Self {
        let mut changed = self.clone();
        for one in changed.tables.iter_mut().filter(|one| one["TableName"] == table) {
            one["StreamSpecification"] = json!({ "StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES" });
        }
        changed
    }
}

/// Returns all changes of a table that has a stream.
///
/// # Errors
/// Returns an error if there is no such table, or if it has no stream.
pub async fn history(dynamodb: &str, table: &str) -> anyhow::Result<Vec<Change>> {
    let tables = async |operation: &str, body: Value| {
        aws_json::call(dynamodb, "dynamodb", &format!("DynamoDB_20120810.{operation}"), &body).await
    };
    let streams = async |operation: &str, body: Value| {
        aws_json::call(dynamodb, "dynamodb", &format!("DynamoDBStreams_20120810.{operation}"), &body).await
    };
    let described = tables("DescribeTable", json!({ "TableName": table })).await?;
    let arn = described["Table"]["LatestStreamArn"].as_str().with_context(|| format!("{table} has no stream"))?;
    let stream = streams("DescribeStream", json!({ "StreamArn": arn })).await?;
    let mut changes = Vec::new();
    for shard in stream["StreamDescription"]["Shards"].as_array().into_iter().flatten() {
        let begin = json!({ "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON" });
        let mut iterator = streams("GetShardIterator", begin).await?["ShardIterator"].take();
        while !iterator.is_null() {
            let mut page = streams("GetRecords", json!({ "ShardIterator": iterator })).await?;
            let records: Vec<_> = page["Records"].as_array().into_iter().flatten().map(change).collect();
            // An open shard never ends, so an empty page ends the loop.
            iterator = if records.is_empty() { Value::Null } else { page["NextShardIterator"].take() };
            changes.extend(records);
        }
    }
    Ok(changes)
}

fn change(record: &Value) -> Change {
    let image = |name: &str| record["dynamodb"][name].clone();
    Change { before: image("OldImage"), after: image("NewImage") }
}
