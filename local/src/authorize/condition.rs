//! Conditions on `dynamodb:LeadingKeys`, the partition keys that a request names.

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;

const KEY: &str = "dynamodb:LeadingKeys";

/// The condition of a statement, as a policy has it in JSON. What cannot be judged here is refused when it is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "BTreeMap<String, BTreeMap<String, Values>>")]
pub struct Condition(Vec<Test>);

/// One operator and its values. All tests of a condition have to hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    /// Each key is like one of these patterns, in which `*` is any text and `?` any character.
    AllLike(Vec<String>),
    /// Each key is one of these.
    AllEqual(Vec<String>),
    /// Whether there is no key.
    Null(bool),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

impl Condition {
    /// Whether a request with these partition keys meets it. As with IAM, a test of all keys holds where there is none.
    pub(super) fn holds(&self, keys: &[String]) -> bool {
        let all = |test: &dyn Fn(&str) -> bool| keys.iter().all(|key| test(key));
        self.0.iter().all(|test| match test {
            Test::AllLike(patterns) => all(&|key| patterns.iter().any(|pattern| is_like(key, pattern))),
            Test::AllEqual(values) => all(&|key| values.iter().any(|value| value == key)),
            Test::Null(is_null) => keys.is_empty() == *is_null,
        })
    }
}

impl TryFrom<BTreeMap<String, BTreeMap<String, Values>>> for Condition {
    type Error = anyhow::Error;

    fn try_from(operators: BTreeMap<String, BTreeMap<String, Values>>) -> anyhow::Result<Self> {
        let mut tests = Vec::new();
        for (operator, keys) in operators {
            for (key, values) in keys {
                ensure!(key == KEY, "a condition on {key} cannot be judged here, only one on {KEY}");
                tests.push(test(&operator, values)?);
            }
        }
        Ok(Self(tests))
    }
}

fn test(operator: &str, values: Values) -> anyhow::Result<Test> {
    let values = match values {
        Values::One(value) => vec![value],
        Values::Several(values) => values,
    };
    if let Some(variable) = values.iter().find(|value| value.contains("${")) {
        bail!("the policy variable in {variable:?} cannot be resolved here");
    }
    match operator {
        "ForAllValues:StringLike" => Ok(Test::AllLike(values)),
        "ForAllValues:StringEquals" => Ok(Test::AllEqual(values)),
        "Null" => {
            let [value] = values.as_slice() else { bail!("Null takes one value") };
            Ok(Test::Null(value.parse().with_context(|| format!("Null takes true or false, not {value:?}"))?))
        }
        _ => bail!("{operator} cannot be judged here; {KEY} has several values and needs ForAllValues"),
    }
}

fn is_like(text: &str, pattern: &str) -> bool {
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
        let condition: Condition = serde_json::from_value(condition).unwrap();
        condition.holds(&keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
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
            (json!({ "ForAllValues:StringLike": { "dynamodb:Attributes": "a" } }), "dynamodb:Attributes cannot"),
            (json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": "${aws:userid}/*" } }), "policy variable"),
            (json!({ "Null": { "dynamodb:LeadingKeys": "no" } }), "true or false"),
        ] {
            let error = serde_json::from_value::<Condition>(condition.clone()).unwrap_err().to_string();
            assert!(error.contains(named), "{condition}: {error}");
        }
    }
}
