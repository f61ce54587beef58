//! The actions and resources that a request needs.

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
    /// The ARN of the resource. It must be the exact ARN; wildcards have no effect.
    pub resource: String,
}

/// All actions that a function is permitted.
pub type Role = BTreeSet<Grant>;

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.action, self.resource)
    }
}

/// Returns what this operation of DynamoDB needs, by the IAM reference. A transaction or a batch
/// needs the action of each of its items.
pub(super) fn needed(operation: &str, request: &Value, region: &str) -> anyhow::Result<Vec<Grant>> {
    let arns = Arns { region };
    match operation {
        "TransactWriteItems" | "TransactGetItems" => {
            let mut needed = Vec::new();
            for item in array(request, "TransactItems")? {
                for (part, item) in item.as_object().context("an item of the transaction is not an object")? {
                    needed.push(arns.grant(action_of_part(part)?, item)?);
                }
            }
            Ok(needed)
        }
        "BatchGetItem" | "BatchWriteItem" => {
            let tables = request["RequestItems"].as_object().context("RequestItems is missing")?;
            Ok(tables.keys().map(|table| grant(operation, arns.table(table))).collect())
        }
        "ListTables" => Ok(vec![grant(operation, "*".to_owned())]),
        _ => Ok(vec![arns.grant(operation, request)?]),
    }
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

fn grant(action: &str, resource: String) -> Grant {
    Grant { action: format!("dynamodb:{action}"), resource }
}

fn array<'a>(request: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    request[name].as_array().with_context(|| format!("{name} is missing"))
}

struct Arns<'a> {
    region: &'a str,
}

impl Arns<'_> {
    fn grant(&self, action: &str, request: &Value) -> anyhow::Result<Grant> {
        let empty = Map::new();
        let request = request.as_object().unwrap_or(&empty);
        let table = request.get("TableName").and_then(Value::as_str).context("TableName is missing")?;
        let table = self.table(table);
        let resource = match request.get("IndexName").and_then(Value::as_str) {
            Some(index) => format!("{table}/index/{index}"),
            None => table,
        };
        Ok(grant(action, resource))
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
        needed
            .iter()
            .map(|grant| grant.to_string().replace("arn:aws:dynamodb:eu-central-1:123456789012:", ""))
            .collect()
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
    fn a_request_without_a_table_is_an_error() {
        assert!(needed("ExecuteStatement", &json!({"Statement": "SELECT * FROM locks"}), "eu-central-1").is_err());
        assert!(needed("TransactWriteItems", &json!({"TransactItems": [{"Own": {}}]}), "eu-central-1").is_err());
    }
}
