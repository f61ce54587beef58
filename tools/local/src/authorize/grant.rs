//! The actions and resources that a request needs, and those that a role grants.

use super::Condition;
use super::condition::is_like;
use super::named::{Named, item};
use crate::lambda::ACCOUNT;
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;

/// One action on one resource, such as `dynamodb:GetItem` on a table's ARN.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Service and action, such as `dynamodb:GetItem`.
    pub action: String,
    /// The ARN of the resource. In that of a state machine, `*` is any text. All others must be the exact ARN, so that a
    /// wildcard on tables has no effect.
    pub resource: String,
    /// For which requests. Without one, for all.
    #[serde(default)]
    pub condition: Option<Condition>,
}

/// All actions that a function is permitted.
pub type Role = BTreeSet<Grant>;

/// One action on one resource that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Service and action.
    pub action: String,
    /// The ARN.
    pub resource: String,
    /// The parts of the request that are about it, with their keys or items in DynamoDB's JSON.
    requests: Vec<Value>,
}

impl Need {
    /// The string keys of the rows that the request names, by the name of the partition key's attribute.
    pub fn keys<'a>(&'a self, partition_key: &'a str) -> impl Iterator<Item = &'a str> {
        self.requests.iter().filter_map(move |part| item(part)?[partition_key]["S"].as_str())
    }
}

impl Grant {
    /// An action on a resource, without a condition.
    pub fn new(action: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { action: action.into(), resource: resource.into(), condition: None }
    }

    /// Whether it is about that action on that resource.
    pub(super) fn is_about(&self, need: &Need) -> bool {
        let covers = self.resource == need.resource || need.is_of_states() && is_like(&need.resource, &self.resource);
        self.action == need.action && covers
    }
}

impl Need {
    fn new(action: &str, resource: String, requests: Vec<Value>) -> Self {
        Self { action: format!("dynamodb:{action}"), resource, requests }
    }

    /// An action of Step Functions on a state machine.
    pub(super) fn of_states(action: &str, resource: String) -> Self {
        Self { action: format!("states:{action}"), resource, requests: Vec::new() }
    }

    /// Whether it is about Step Functions. Everything else is about DynamoDB.
    pub(super) fn is_of_states(&self) -> bool {
        self.action.starts_with("states:")
    }

    /// The name of the table.
    pub(super) fn table(&self) -> Option<&str> {
        self.resource.split_once(":table/").and_then(|(_, table)| table.split('/').next())
    }

    /// What the request names, on a table with the partition key of this name.
    pub(super) fn named<'a>(&'a self, partition_key: &'a str) -> Named<'a> {
        Named { requests: &self.requests, partition_key, action: &self.action }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.action, self.resource)
    }
}

/// Returns what this operation of DynamoDB needs, by the IAM reference. A transaction or a batch
/// needs the action of each of its items.
pub(super) fn needed(operation: &str, request: &Value, region: &str) -> anyhow::Result<Vec<Need>> {
    let arns = Arns { region };
    match operation {
        "TransactWriteItems" | "TransactGetItems" => {
            let mut needed = Vec::new();
            for item in array(request, "TransactItems")? {
                for (part, item) in item.as_object().context("an item of the transaction is not an object")? {
                    needed.push(arns.need(action_of_part(part)?, item)?);
                }
            }
            Ok(needed)
        }
        "BatchGetItem" | "BatchWriteItem" => {
            let tables = request["RequestItems"].as_object().context("RequestItems is missing")?;
            let need =
                |(table, items): (&String, &Value)| Need::new(operation, arns.table(table), parts_of_batch(items));
            Ok(tables.iter().map(need).collect())
        }
        "ListTables" => Ok(vec![Need::new(operation, "*".to_owned(), Vec::new())]),
        _ => Ok(vec![arns.need(operation, request)?]),
    }
}

/// The parts of a batch that are about one table. Each read has the projection of the whole.
fn parts_of_batch(batch: &Value) -> Vec<Value> {
    let writes = batch.as_array().into_iter().flatten().filter_map(|write| write.as_object()?.values().next().cloned());
    let read = |key: &Value| {
        let mut read = batch.clone();
        read["Key"] = key.clone();
        read
    };
    writes.chain(batch["Keys"].as_array().into_iter().flatten().map(read)).collect()
}

fn action_of_part(part: &str) -> anyhow::Result<&'static str> {
    match part {
        "ConditionCheck" => Ok("ConditionCheckItem"),
        "Put" => Ok("PutItem"),
        "Update" => Ok("UpdateItem"),
        "Delete" => Ok("DeleteItem"),
        "Get" => Ok("GetItem"),
        _ => bail!("{part:?} is not a part of a transaction"),
    }
}

fn array<'a>(request: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    request[name].as_array().with_context(|| format!("{name} is missing"))
}

struct Arns<'a> {
    region: &'a str,
}

impl Arns<'_> {
    fn need(&self, action: &str, request: &Value) -> anyhow::Result<Need> {
        let empty = Map::new();
        let fields = request.as_object().unwrap_or(&empty);
        let table = fields.get("TableName").and_then(Value::as_str).context("TableName is missing")?;
        let table = self.table(table);
        let resource = match fields.get("IndexName").and_then(Value::as_str) {
            Some(index) => format!("{table}/index/{index}"),
            None => table,
        };
        Ok(Need::new(action, resource, vec![request.clone()]))
    }

    /// Returns the ARN of a table. A request may also name the table by its ARN.
    fn table(&self, name: &str) -> String {
        if name.starts_with("arn:") {
            return name.to_owned();
        }
        format!("arn:aws:dynamodb:{}:{ACCOUNT}:table/{name}", self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn needed_by(operation: &str, request: &Value) -> Vec<String> {
        let needed = needed(operation, request, "eu-central-1").unwrap();
        let short = |need: &Need| need.resource.replace("arn:aws:dynamodb:eu-central-1:123456789012:", "");
        needed.iter().map(|need| format!("{} on {}", need.action, short(need))).collect()
    }

    #[test]
    fn a_request_on_a_table_needs_its_own_action() {
        assert_eq!(needed_by("UpdateItem", &json!({"TableName": "locks"})), ["dynamodb:UpdateItem on table/locks"]);
        let by_arn = json!({"TableName": "arn:aws:dynamodb:eu-central-1:123456789012:table/locks"});
        assert_eq!(needed_by("GetItem", &by_arn), ["dynamodb:GetItem on table/locks"]);
    }

    #[test]
    fn a_query_of_an_index_needs_the_index_and_not_the_table() {
        let query = json!({"TableName": "locks", "IndexName": "byWorkflow"});
        assert_eq!(needed_by("Query", &query), ["dynamodb:Query on table/locks/index/byWorkflow"]);
    }

    #[test]
    fn a_transaction_needs_the_action_of_each_item() {
        let transaction = json!({"TransactItems": [
            {"ConditionCheck": {"TableName": "locks"}},
            {"Put": {"TableName": "orders"}},
            {"Update": {"TableName": "locks"}},
            {"Delete": {"TableName": "locks"}},
        ]});
        let expected = [
            "dynamodb:ConditionCheckItem on table/locks",
            "dynamodb:PutItem on table/orders",
            "dynamodb:UpdateItem on table/locks",
            "dynamodb:DeleteItem on table/locks",
        ];
        assert_eq!(needed_by("TransactWriteItems", &transaction), expected);
        let reads = json!({"TransactItems": [{"Get": {"TableName": "locks"}}]});
        assert_eq!(needed_by("TransactGetItems", &reads), ["dynamodb:GetItem on table/locks"]);
    }

    #[test]
    fn a_batch_needs_its_action_on_each_table() {
        let batch = json!({"RequestItems": {"a": [], "b": []}});
        let expected = ["dynamodb:BatchWriteItem on table/a", "dynamodb:BatchWriteItem on table/b"];
        assert_eq!(needed_by("BatchWriteItem", &batch), expected);
    }

    #[test]
    fn the_partition_keys_are_those_of_every_key_and_item() {
        let key = |text: &str| json!({"id": {"S": text}, "other": {"S": "no"}});
        for (operation, request, expected) in [
            ("GetItem", json!({"TableName": "t", "Key": key("a")}), vec!["a"]),
            ("PutItem", json!({"TableName": "t", "Item": key("a")}), vec!["a"]),
            ("DeleteItem", json!({"TableName": "t", "Key": key("a")}), vec!["a"]),
            ("UpdateItem", json!({"TableName": "t", "Key": {"id": {"N": "7"}}}), vec!["7"]),
            ("Scan", json!({"TableName": "t"}), vec![]),
            ("BatchGetItem", json!({"RequestItems": {"t": {"Keys": [key("a"), key("b")]}}}), vec!["a", "b"]),
            (
                "BatchWriteItem",
                json!({"RequestItems": {"t": [{"PutRequest": {"Item": key("a")}}, {"DeleteRequest": {"Key": key("b")}}]}}),
                vec!["a", "b"],
            ),
        ] {
            let needed = needed(operation, &request, "eu-central-1").unwrap();
            assert_eq!(needed[0].named("id").leading_keys().unwrap(), expected, "{operation}");
            assert_eq!(needed[0].table(), Some("t"), "{operation}");
        }
    }

    #[test]
    fn a_transaction_names_a_partition_key_for_each_item() {
        let key = |text: &str| json!({"id": {"S": text}});
        let transaction = json!({"TransactItems": [
            {"Update": {"TableName": "t", "Key": key("a")}},
            {"Put": {"TableName": "t", "Item": key("b")}},
        ]});
        let needed = needed("TransactWriteItems", &transaction, "eu-central-1").unwrap();
        let keys: Vec<_> = needed.iter().map(|need| need.named("id").leading_keys().unwrap()).collect();
        assert_eq!(keys, [["a"], ["b"]]);
    }

    #[test]
    fn partition_keys_that_cannot_be_read_are_no_partition_keys() {
        for (operation, request) in [
            ("Query", json!({"TableName": "t", "KeyConditionExpression": "id = :id"})),
            ("GetItem", json!({"TableName": "t", "Key": {"another": {"S": "a"}}})),
            ("GetItem", json!({"TableName": "t", "Key": {"id": {"B": "YQ=="}}})),
        ] {
            let needed = needed(operation, &request, "eu-central-1").unwrap();
            assert!(needed[0].named("id").leading_keys().is_err(), "{operation} {request}");
        }
    }

    #[test]
    fn a_request_without_a_table_is_an_error() {
        assert!(needed("ExecuteStatement", &json!({"Statement": "SELECT * FROM locks"}), "eu-central-1").is_err());
        assert!(needed("TransactWriteItems", &json!({"TransactItems": [{"Own": {}}]}), "eu-central-1").is_err());
    }
}
