//! The fence as a `ConditionCheck` for a transaction of the host.

use crate::bindings::exports::lambda_lock::lock::types::{
    Attribute, AttributeValue as Value, ConditionCheck, Error, NamePlaceholder, ValuePlaceholder,
};
use crate::error::invalid;
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem};
use std::collections::HashMap;

pub(crate) fn written(item: TransactWriteItem) -> Result<ConditionCheck, Error> {
    let Some(check) = item.condition_check else {
        return Err(invalid("the crate gave no condition check"));
    };
    let attribute = |(name, value)| Attribute { name, value };
    let value_placeholder = |(placeholder, value)| ValuePlaceholder { placeholder, value };
    let names = check.expression_attribute_names.unwrap_or_default();
    Ok(ConditionCheck {
        table_name: check.table_name,
        key: values(check.key).map(attribute).collect(),
        condition_expression: check.condition_expression,
        expression_attribute_names: names
            .into_iter()
            .map(|(placeholder, name)| NamePlaceholder { placeholder, name })
            .collect(),
        expression_attribute_values: values(check.expression_attribute_values.unwrap_or_default())
            .map(value_placeholder)
            .collect(),
    })
}

fn values(attributes: HashMap<String, AttributeValue>) -> impl Iterator<Item = (String, Value)> {
    attributes.into_iter().map(|(name, value)| {
        let value = match value {
            AttributeValue::S(text) => Value::S(text),
            AttributeValue::N(number) => Value::N(number),
            AttributeValue::B(bytes) => Value::B(bytes.into_inner()),
            // A lock writes no other types.
            _ => Value::Other("NULL".to_owned()),
        };
        (name, value)
    })
}
