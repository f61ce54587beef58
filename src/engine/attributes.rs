//! Items, keys and values of the protocol as attributes of the SDK, and back.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock_protocol::{Item, LockKey, Schema, Value};
use std::collections::HashMap;

pub(crate) type Attributes = HashMap<String, AttributeValue>;

pub(crate) fn key_attributes(schema: &Schema, key: &LockKey) -> Attributes {
    let mut attributes = HashMap::with_capacity(2);
    if let (Some(name), Some(value)) = (&schema.sort_key_attribute, key.sort_key()) {
        attributes.insert(name.clone(), AttributeValue::S(value.to_owned()));
    }
    attributes.insert(schema.key_attribute.clone(), AttributeValue::S(key.key().to_owned()));
    attributes
}

/// The names behind an expression's placeholders. `None` where there are none: DynamoDB refuses an empty map.
pub(crate) fn placeholder_names(names: Vec<(&'static str, String)>) -> Option<HashMap<String, String>> {
    let names: HashMap<_, _> = names.into_iter().map(|(placeholder, name)| (placeholder.to_owned(), name)).collect();
    (!names.is_empty()).then_some(names)
}

pub(crate) fn placeholder_values(values: Vec<(&'static str, Value)>) -> Attributes {
    values.into_iter().map(|(placeholder, value)| (placeholder.to_owned(), attribute_value(value))).collect()
}

fn attribute_value(value: Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text),
        Value::N(number) => AttributeValue::N(number),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes)),
        Value::Ns(numbers) => AttributeValue::Ns(numbers),
        // Only ever read, never written.
        Value::Other(_) => AttributeValue::Null(true),
    }
}

pub(crate) fn item(attributes: Attributes) -> Item {
    attributes.into_iter().map(|(name, attribute)| (name, value(attribute))).collect()
}

fn value(attribute: AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(number) => Value::N(number),
        AttributeValue::B(bytes) => Value::B(bytes.into_inner()),
        AttributeValue::Ns(numbers) => Value::Ns(numbers),
        AttributeValue::Bool(_) => Value::Other("BOOL"),
        AttributeValue::Null(_) => Value::Other("NULL"),
        AttributeValue::L(_) => Value::Other("L"),
        AttributeValue::M(_) => Value::Other("M"),
        AttributeValue::Ss(_) => Value::Other("SS"),
        AttributeValue::Bs(_) => Value::Other("BS"),
        _ => Value::Other("of an unknown type"),
    }
}
