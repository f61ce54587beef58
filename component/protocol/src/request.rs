//! Converts requests to DynamoDB's parameters, and the host's answers to the crate's.

use crate::bindings::exports::lambda_lock::lock::decisions::{self, Failure, Operation};
use crate::bindings::exports::lambda_lock::lock::types::{
    self, Attribute, AttributeValue, NamePlaceholder, ValuePlaceholder,
};
use crate::shared::Shared;
use lambda_lock_protocol::{
    Action, Answer, DataChange, Expression, Fault, Holding, Item, LockKey, Request, Returns, Schema, Value, Written,
};

pub(crate) fn rendered(request: &Request, shared: &Shared) -> (decisions::Request, Returns) {
    let schema = &shared.settings.schema;
    let Expression { update, condition, names, values, returns } = Expression::of(request, schema);
    let return_values = match returns {
        Returns::Nothing => "NONE",
        Returns::AllNew => "ALL_NEW",
        Returns::UpdatedOld => "UPDATED_OLD",
    };
    let request = decisions::Request {
        operation: Operation::UpdateItem,
        table_name: shared.table.clone(),
        key: key(&request.key, schema),
        update_expression: Some(update),
        condition_expression: Some(condition),
        expression_attribute_names: name_placeholders(names),
        expression_attribute_values: value_placeholders(values),
        return_values: Some(return_values.to_owned()),
        return_values_on_condition_check_failure: Some("ALL_OLD".to_owned()),
        consistent_read: None,
    };
    (request, returns)
}

/// A read of this row.
pub(crate) fn read(of: &LockKey, shared: &Shared) -> decisions::Request {
    decisions::Request {
        operation: Operation::GetItem,
        table_name: shared.table.clone(),
        key: key(of, &shared.settings.schema),
        update_expression: None,
        condition_expression: None,
        expression_attribute_names: Vec::new(),
        expression_attribute_values: Vec::new(),
        return_values: None,
        return_values_on_condition_check_failure: None,
        consistent_read: Some(true),
    }
}

/// The condition that the grant of this lock is current.
pub(crate) fn fence(holding: &Holding, shared: &Shared) -> types::ConditionCheck {
    let schema = &shared.settings.schema;
    let action = Action::Fence { grant: holding.newest.grant, token: holding.token };
    let request = Request::alone(holding.key.clone(), action);
    let Expression { condition, names, values, .. } = Expression::of(&request, schema);
    types::ConditionCheck {
        table_name: shared.table.clone(),
        key: key(&holding.key, schema),
        condition_expression: condition,
        expression_attribute_names: name_placeholders(names),
        expression_attribute_values: value_placeholders(values),
    }
}

fn key(key: &LockKey, schema: &Schema) -> Vec<Attribute> {
    let text =
        |name: &str, value: &str| Attribute { name: name.to_owned(), value: AttributeValue::S(value.to_owned()) };
    let sort_key = schema.sort_key_attribute.as_deref().zip(key.sort_key());
    std::iter::once((schema.key_attribute.as_str(), key.key()))
        .chain(sort_key)
        .map(|(name, value)| text(name, value))
        .collect()
}

fn name_placeholders(names: Vec<(&'static str, String)>) -> Vec<NamePlaceholder> {
    names.into_iter().map(|(placeholder, name)| NamePlaceholder { placeholder: placeholder.to_owned(), name }).collect()
}

fn value_placeholders(values: Vec<(&'static str, Value)>) -> Vec<ValuePlaceholder> {
    let placeholder = |(placeholder, value): (&str, Value)| ValuePlaceholder {
        placeholder: placeholder.to_owned(),
        value: match value {
            Value::S(text) => AttributeValue::S(text),
            Value::N(number) => AttributeValue::N(number),
            Value::B(bytes) => AttributeValue::B(bytes),
            Value::Ns(numbers) => AttributeValue::Ns(numbers),
            Value::Other(name) => AttributeValue::Other(name.to_owned()),
        },
    };
    values.into_iter().map(placeholder).collect()
}

/// Converts the host's answer. If the attributes that were requested are missing, the outcome counts as unknown.
pub(crate) fn answer(given: decisions::Answer, returns: Returns) -> Answer {
    match given {
        decisions::Answer::Applied(attributes) if attributes.is_empty() && returns != Returns::Nothing => {
            Answer::Fault(Fault::Unknown)
        }
        decisions::Answer::Applied(attributes) => Answer::Written(Written::Applied(item(attributes))),
        decisions::Answer::ConditionFailed(row) => Answer::Written(Written::Refused(row.map(item))),
        decisions::Answer::Found(row) => Answer::Read(row.map(item)),
        decisions::Answer::Failed(Failure { code, message }) => {
            Answer::Fault(Fault::of_error(Some(&code), message.as_deref()))
        }
        decisions::Answer::Unknown => Answer::Fault(Fault::Unknown),
    }
}

fn item(attributes: Vec<Attribute>) -> Item {
    attributes.into_iter().map(|Attribute { name, value }| (name, self::value(value))).collect()
}

fn value(value: types::AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(number) => Value::N(number),
        AttributeValue::B(bytes) => Value::B(bytes),
        AttributeValue::Ns(numbers) => Value::Ns(numbers),
        AttributeValue::Other(name) => {
            let known = ["BOOL", "NULL", "L", "M", "SS", "BS"].into_iter().find(|known| *known == name);
            Value::Other(known.unwrap_or("of an unknown type"))
        }
    }
}

pub(crate) fn data_change(data: types::DataChange) -> DataChange {
    match data {
        types::DataChange::Keep => DataChange::Keep,
        types::DataChange::Set(bytes) => DataChange::Set(bytes),
        types::DataChange::Remove => DataChange::Remove,
    }
}
