//! What a request names that a condition can be about: partition keys, attributes, and what is returned. Sources are
//! [DynamoDB's condition keys](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html).

use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeSet;

/// The expressions of a request, each with the attributes that it reads or writes.
const EXPRESSIONS: [&str; 5] =
    ["ConditionExpression", "FilterExpression", "KeyConditionExpression", "ProjectionExpression", "UpdateExpression"];
/// What names attributes in the way that expressions have replaced.
const LEGACY: [&str; 7] = [
    "AttributesToGet",
    "AttributeUpdates",
    "ConditionalOperator",
    "Expected",
    "KeyConditions",
    "QueryFilter",
    "ScanFilter",
];
/// The words of expressions that are no attributes. Functions are told by their parenthesis.
const WORDS: [&str; 9] = ["SET", "REMOVE", "ADD", "DELETE", "AND", "OR", "NOT", "BETWEEN", "IN"];

/// What one action of a request names on one table.
pub(super) struct Named<'a> {
    /// The parts of the request, each with its key or its item.
    pub(super) requests: &'a [Value],
    /// The name of the table's partition key.
    pub(super) partition_key: &'a str,
    pub(super) action: &'a str,
}

impl Named<'_> {
    /// The values of the partition key, as IAM compares them.
    pub(super) fn leading_keys(&self) -> anyhow::Result<Vec<String>> {
        if self.action == "dynamodb:Query" {
            bail!("the partition keys of a Query cannot be read here");
        }
        let key = |item: &Value| {
            let value = &item[self.partition_key];
            let text = value["S"].as_str().or_else(|| value["N"].as_str());
            let missing = || format!("{item} has no {} that can be compared", self.partition_key);
            Ok(text.with_context(missing)?.to_owned())
        };
        self.requests.iter().filter_map(item).map(key).collect()
    }

    /// The names of the attributes, without those inside of them.
    pub(super) fn attributes(&self) -> anyhow::Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for request in self.requests {
            if let Some(field) = LEGACY.iter().find(|field| request.get(**field).is_some()) {
                bail!("the attributes of {field} cannot be read here: use an expression");
            }
            names.extend(item(request).and_then(Value::as_object).into_iter().flat_map(|item| item.keys().cloned()));
            for expression in EXPRESSIONS.iter().filter_map(|name| request[*name].as_str()) {
                for name in attributes_of(expression) {
                    let placeholder = name.starts_with('#').then(|| request["ExpressionAttributeNames"][name].as_str());
                    let name = placeholder.map_or(Some(name), |attribute| attribute);
                    names
                        .insert(name.with_context(|| format!("a placeholder of {expression} has no name"))?.to_owned());
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Which attributes a read returns.
    pub(super) fn select(&self) -> Option<&str> {
        let request = self.requests.first()?;
        let reads = ["GetItem", "BatchGetItem", "Query", "Scan"];
        if !reads.iter().any(|read| self.action.ends_with(&format!(":{read}"))) {
            return None;
        }
        let some = request.get("ProjectionExpression").map_or("ALL_ATTRIBUTES", |_| "SPECIFIC_ATTRIBUTES");
        Some(request["Select"].as_str().unwrap_or(some))
    }

    /// What a write returns, where it says so.
    pub(super) fn return_values(&self) -> Option<&str> {
        self.requests.first()?["ReturnValues"].as_str()
    }
}

/// The key or the item that a request or its part names, if it names one.
pub(super) fn item(request: &Value) -> Option<&Value> {
    request.get("Key").or_else(|| request.get("Item"))
}

/// The names in an expression: attributes and their placeholders, without what follows a dot.
fn attributes_of(expression: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_#:".contains(c);
    let begins = expression.char_indices().filter(move |(at, c)| {
        let before = expression[..*at].chars().next_back();
        is_of_name(*c) && !before.is_some_and(|before| is_of_name(before) || before == '.')
    });
    begins.filter_map(move |(begin, first)| {
        let rest = &expression[begin..];
        let name = &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())];
        let is_function = rest[name.len()..].trim_start().starts_with('(') && !is_word(name);
        let is_attribute = !first.is_ascii_digit() && first != ':' && !is_function && !is_word(name);
        is_attribute.then_some(name)
    })
}

fn is_word(name: &str) -> bool {
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(request: Value) -> anyhow::Result<Vec<String>> {
        Named { requests: &[request], partition_key: "id", action: "dynamodb:UpdateItem" }.attributes()
    }

    #[test]
    fn attributes_are_those_of_the_key_and_of_every_expression() {
        let request = json!({
            "Key": { "id": { "S": "k" } },
            "ConditionExpression": "attribute_not_exists(#pk) OR begins_with(a, :a) AND (b.c[0] <= :now OR NOT d IN (:x, e))",
            "UpdateExpression": "SET f = if_not_exists (g, :g) + :one, #h.i = :h REMOVE j[1] ADD k :k",
            "ProjectionExpression": "l, #pk",
            "ExpressionAttributeNames": { "#pk": "id", "#h": "h-h" },
        });
        let expected = ["a", "b", "d", "e", "f", "g", "h-h", "id", "j", "k", "l"];
        assert_eq!(named(request).unwrap(), expected);
    }

    #[test]
    fn attributes_that_cannot_be_read_are_no_attributes() {
        for request in [
            json!({ "Key": {}, "UpdateExpression": "SET #a = :a" }),
            json!({ "Key": {}, "AttributeUpdates": { "a": {} } }),
            json!({ "Key": {}, "Expected": { "a": {} } }),
        ] {
            assert!(named(request.clone()).is_err(), "{request}");
        }
    }

    #[test]
    fn a_read_without_a_projection_returns_all_attributes() {
        let select = |action: &str, request: Value| {
            Named { requests: &[request], partition_key: "id", action }.select().map(str::to_owned)
        };
        assert_eq!(select("dynamodb:GetItem", json!({ "Key": {} })).as_deref(), Some("ALL_ATTRIBUTES"));
        let some = json!({ "Key": {}, "ProjectionExpression": "a" });
        assert_eq!(select("dynamodb:GetItem", some.clone()).as_deref(), Some("SPECIFIC_ATTRIBUTES"));
        assert_eq!(select("dynamodb:UpdateItem", some), None);
        assert_eq!(select("dynamodb:Query", json!({ "Select": "COUNT" })).as_deref(), Some("COUNT"));
    }
}
