//! Reads a `ConditionCheck` from a host's JSON. Attribute values have the form of DynamoDB's JSON.

use anyhow::{Context, bail};
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, TransactWriteItem};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

pub(crate) fn written(item: TransactWriteItem) -> anyhow::Result<Value> {
    let check = item.condition_check.context("not a condition check")?;
    Ok(json!({
        "tableName": check.table_name,
        "key": values(&check.key)?,
        "conditionExpression": check.condition_expression,
        "expressionAttributeNames": check.expression_attribute_names.unwrap_or_default(),
        "expressionAttributeValues": values(&check.expression_attribute_values.unwrap_or_default())?,
    }))
}

pub(crate) fn read(check: &Value) -> anyhow::Result<TransactWriteItem> {
    let text = |name: &str| check[name].as_str().map(str::to_owned);
    let object = |name: &str| check[name].as_object().with_context(|| format!("{name} is missing in {check}"));
    let names = object("expressionAttributeNames")?;
    let names: HashMap<_, _> =
        names.iter().filter_map(|(placeholder, name)| Some((placeholder.clone(), name.as_str()?.to_owned()))).collect();
    let read = ConditionCheck::builder()
        .set_table_name(text("tableName"))
        .set_key(Some(read_values(object("key")?)?))
        .set_condition_expression(text("conditionExpression"))
        .set_expression_attribute_names((!names.is_empty()).then_some(names))
        .set_expression_attribute_values(Some(read_values(object("expressionAttributeValues")?)?))
        .build()?;
    Ok(TransactWriteItem::builder().condition_check(read).build())
}

fn values(attributes: &HashMap<String, AttributeValue>) -> anyhow::Result<Map<String, Value>> {
    let written = |(name, value): (&String, &AttributeValue)| {
        let value = match value {
            AttributeValue::S(text) => json!({"S": text}),
            AttributeValue::N(number) => json!({"N": number}),
            other => bail!("unexpected type {other:?} in the condition of a lock"),
        };
        Ok((name.clone(), value))
    };
    attributes.iter().map(written).collect()
}

fn read_values(attributes: &Map<String, Value>) -> anyhow::Result<HashMap<String, AttributeValue>> {
    let read = |(name, value): (&String, &Value)| {
        let value = match (value["S"].as_str(), value["N"].as_str()) {
            (Some(text), None) => AttributeValue::S(text.to_owned()),
            (None, Some(number)) => AttributeValue::N(number.to_owned()),
            _ => bail!("{name} is {value}, but must be text or a number"),
        };
        Ok((name.clone(), value))
    };
    attributes.iter().map(read).collect()
}
