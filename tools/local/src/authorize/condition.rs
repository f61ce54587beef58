//! Conditions on the partition keys and the attributes that a request names, and on what it wants to have returned.

use super::named::Named;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The condition of a statement, as a policy has it in JSON. What cannot be judged here is refused when it is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "BTreeMap<String, BTreeMap<String, Values>>")]
pub struct Condition(Vec<(Key, Test)>);

/// The condition keys that can be judged here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    LeadingKeys,
    Attributes,
    Select,
    ReturnValues,
}

/// One operator and its values. All tests of a condition have to hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    /// Each value is like one of these patterns, in which `*` is any text and `?` any character.
    AllLike(Vec<String>),
    /// Each value is one of these.
    AllEqual(Vec<String>),
    /// Whether there is no value.
    Null(bool),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

impl Condition {
    /// Whether a request that names this meets it. As with IAM, a test of all values holds where there is none.
    pub(super) fn holds(&self, named: &Named<'_>) -> anyhow::Result<bool> {
        for (key, test) in &self.0 {
            let values = match key {
                Key::LeadingKeys => named.leading_keys()?,
                Key::Attributes => named.attributes()?,
                Key::Select => named.select().map(str::to_owned).into_iter().collect(),
                Key::ReturnValues => named.return_values().map(str::to_owned).into_iter().collect(),
            };
            let holds = match test {
                Test::AllLike(patterns) => {
                    values.iter().all(|key| patterns.iter().any(|pattern| is_like(key, pattern)))
                }
                Test::AllEqual(allowed) => values.iter().all(|value| allowed.contains(value)),
                Test::Null(is_null) => values.is_empty() == *is_null,
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl TryFrom<BTreeMap<String, BTreeMap<String, Values>>> for Condition {
    type Error = anyhow::Error;

    fn try_from(operators: BTreeMap<String, BTreeMap<String, Values>>) -> anyhow::Result<Self> {
        let mut tests = Vec::new();
        for (operator, keys) in operators {
            for (name, values) in keys {
                let key = match name.as_str() {
                    "dynamodb:LeadingKeys" => Key::LeadingKeys,
                    "dynamodb:Attributes" => Key::Attributes,
                    "dynamodb:Select" => Key::Select,
                    "dynamodb:ReturnValues" => Key::ReturnValues,
                    _ => bail!("a condition on {name} cannot be judged here"),
                };
                tests.push((key, test(&operator, key, values)?));
            }
        }
        Ok(Self(tests))
    }
}

fn test(operator: &str, key: Key, values: Values) -> anyhow::Result<Test> {
    let values = match values {
        Values::One(value) => vec![value],
        Values::Several(values) => values,
    };
    if let Some(variable) = values.iter().find(|value| value.contains("${")) {
        bail!("the policy variable in {variable:?} cannot be resolved here");
    }
    match (operator, key) {
        ("ForAllValues:StringLike", Key::LeadingKeys | Key::Attributes) => Ok(Test::AllLike(values)),
        ("ForAllValues:StringEquals", Key::LeadingKeys | Key::Attributes) => Ok(Test::AllEqual(values)),
        // There is at most one value.
        ("StringEqualsIfExists", Key::Select | Key::ReturnValues) => Ok(Test::AllEqual(values)),
        ("Null", _) => {
            let [value] = values.as_slice() else { bail!("Null takes one value") };
            Ok(Test::Null(value.parse().with_context(|| format!("Null takes true or false, not {value:?}"))?))
        }
        (_, Key::LeadingKeys | Key::Attributes) => {
            bail!("{operator} cannot be judged here; what has several values needs ForAllValues")
        }
        _ => bail!("{operator} cannot be judged here; what a request may leave out needs StringEqualsIfExists"),
    }
}

/// Whether the text is like the pattern, in which `*` is any text and `?` any character.
pub(super) fn is_like(text: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            let mut starts = text.char_indices().map(|(start, _)| start).chain([text.len()]);
            starts.any(|start| is_like(&text[start..], rest.as_str()))
        }
        Some(wanted) => {
            let mut others = text.chars();
            others.next().is_some_and(|c| wanted == '?' || wanted == c) && is_like(others.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn holds(condition: Value, keys: &[&str]) -> bool {
        let keys = keys.iter().map(|key| json!({ "Key": { "id": { "S": key } } })).collect();
        of(&condition, keys)
    }

    /// Whether the condition holds for these parts of a request on a table with the partition key `id`.
    fn of(condition: &Value, requests: Vec<Value>) -> bool {
        let condition: Condition = serde_json::from_value(condition.clone()).unwrap();
        condition.holds(&Named { requests: &requests, partition_key: "id", action: "dynamodb:UpdateItem" }).unwrap()
    }

    #[test]
    fn attributes_and_what_is_returned_have_to_be_those_of_the_policy() {
        let condition = json!({
            "ForAllValues:StringEquals": { "dynamodb:Attributes": ["id", "a", "b"] },
            "StringEqualsIfExists": {
                "dynamodb:Select": "SPECIFIC_ATTRIBUTES", "dynamodb:ReturnValues": ["NONE", "UPDATED_NEW"],
            },
        });
        let key = json!({ "id": { "S": "k" } });
        for (request, expected) in [
            (json!({ "Key": key, "UpdateExpression": "SET a = :a REMOVE b" }), true),
            (json!({ "Key": key, "UpdateExpression": "SET a = :a REMOVE c" }), false),
            (json!({ "Key": key, "UpdateExpression": "SET a = :a", "ReturnValues": "UPDATED_NEW" }), true),
            (json!({ "Key": key, "UpdateExpression": "SET a = :a", "ReturnValues": "ALL_NEW" }), false),
            (json!({ "Key": { "other": { "S": "k" }, "id": { "S": "k" } } }), false),
            (json!({ "Key": key, "ProjectionExpression": "a" }), true),
        ] {
            assert_eq!(of(&condition, vec![request.clone()]), expected, "{request}");
        }
    }

    #[test]
    fn each_key_has_to_be_like_one_of_the_patterns() {
        let condition = json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": ["blue/*", "all/?"] } });
        for (keys, expected) in [
            (&["blue/k"][..], true),
            (&["blue/"], true),
            (&["blue/a/b", "all/7"], true),
            (&["blue"], false),
            (&["Blue/k"], false),
            (&["red/blue/k"], false),
            (&["all/77"], false),
            (&["all/"], false),
            (&["blue/k", "red/k"], false),
        ] {
            assert_eq!(holds(condition.clone(), keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn each_key_has_to_be_one_of_the_values_without_wildcards() {
        let condition = json!({ "ForAllValues:StringEquals": { "dynamodb:LeadingKeys": ["a", "b*"] } });
        for (keys, expected) in [(&["a"][..], true), (&["a", "b*"], true), (&["bc"], false), (&["a", "c"], false)] {
            assert_eq!(holds(condition.clone(), keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn a_request_without_keys_meets_a_test_of_all_keys_unless_null_is_ruled_out() {
        let alone = json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": "blue/*" } });
        let mut with_null = alone.clone();
        with_null["Null"] = json!({ "dynamodb:LeadingKeys": "false" });

        assert!(holds(alone, &[]));
        assert!(!holds(with_null.clone(), &[]));
        assert!(holds(with_null, &["blue/k"]));
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        for (condition, named) in [
            (json!({ "StringLike": { "dynamodb:LeadingKeys": "a" } }), "ForAllValues"),
            (json!({ "ForAnyValue:StringLike": { "dynamodb:LeadingKeys": "a" } }), "ForAnyValue:StringLike cannot"),
            (json!({ "StringEquals": { "dynamodb:Attributes": "a" } }), "ForAllValues"),
            (json!({ "StringEquals": { "dynamodb:Select": "COUNT" } }), "StringEqualsIfExists"),
            (json!({ "Bool": { "aws:SecureTransport": "true" } }), "aws:SecureTransport cannot"),
            (json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": "${aws:userid}/*" } }), "policy variable"),
            (json!({ "Null": { "dynamodb:LeadingKeys": "no" } }), "true or false"),
        ] {
            let error = serde_json::from_value::<Condition>(condition.clone()).unwrap_err().to_string();
            assert!(error.contains(named), "{condition}: {error}");
        }
    }
}
