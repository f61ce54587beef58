//! Sends one request of the component `protocol` with the AWS SDK, and returns what is known afterwards.

use crate::bindings::decisions::{Answer, Failure, Operation, Request};
use crate::bindings::types::{Attribute, AttributeValue as WitValue};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

type Item = HashMap<String, AttributeValue>;

/// Sends a request once, and waits at most `patience` for the response.
pub async fn send(dynamodb: &Client, request: Request, patience: Duration) -> Answer {
    let answer = async {
        match request.operation {
            Operation::GetItem => get(dynamodb, request).await,
            Operation::UpdateItem => update(dynamodb, request).await,
        }
    };
    timeout(patience, answer).await.unwrap_or(Answer::Unknown)
}

async fn get(dynamodb: &Client, request: Request) -> Answer {
    let get = dynamodb.get_item().table_name(request.table_name).set_key(Some(item(request.key)));
    match get.set_consistent_read(request.consistent_read).send().await {
        Ok(read) => Answer::Found(read.item.map(attributes)),
        Err(error) => refusal(&error, |_| None),
    }
}

async fn update(dynamodb: &Client, request: Request) -> Answer {
    let (names, values) = placeholders(&request);
    let row = request.return_values_on_condition_check_failure.map(|wanted| wanted.as_str().into());
    let update = dynamodb
        .update_item()
        .table_name(request.table_name)
        .set_key(Some(item(request.key)))
        .set_update_expression(request.update_expression)
        .set_condition_expression(request.condition_expression)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .set_return_values(request.return_values.map(|wanted| wanted.as_str().into()))
        .set_return_values_on_condition_check_failure(row);
    match update.send().await {
        Ok(written) => Answer::Applied(written.attributes.map(attributes).unwrap_or_default()),
        Err(error) => refusal(&error, |error| match error {
            UpdateItemError::ConditionalCheckFailedException(failed) => Some(failed.item.clone()),
            _ => None,
        }),
    }
}

/// The meaning of a failure. A response with a status of 400 to 499 and a code is a refusal. **For all other failures
/// the outcome is unknown.** `refused` returns the row of a condition that failed.
fn refusal<E: ProvideErrorMetadata>(
    error: &SdkError<E, HttpResponse>,
    refused: impl FnOnce(&E) -> Option<Option<Item>>,
) -> Answer {
    let SdkError::ServiceError(context) = error else { return Answer::Unknown };
    if !context.raw().status().is_client_error() {
        return Answer::Unknown;
    }
    if let Some(row) = refused(context.err()) {
        return Answer::ConditionFailed(row.map(attributes));
    }
    let message = context.err().message().map(str::to_owned);
    context.err().code().map_or(Answer::Unknown, |code| Answer::Failed(Failure { code: code.to_owned(), message }))
}

/// Names and values of expressions. If there are none, the SDK needs `None` instead of an empty map.
fn placeholders(request: &Request) -> (Option<HashMap<String, String>>, Option<Item>) {
    let names = &request.expression_attribute_names;
    let names: HashMap<_, _> = names.iter().map(|each| (each.placeholder.clone(), each.name.clone())).collect();
    let values = &request.expression_attribute_values;
    let values: Item = values.iter().map(|each| (each.placeholder.clone(), to_sdk(each.value.clone()))).collect();
    ((!names.is_empty()).then_some(names), (!values.is_empty()).then_some(values))
}

fn item(attributes: Vec<Attribute>) -> Item {
    attributes.into_iter().map(|Attribute { name, value }| (name, to_sdk(value))).collect()
}

fn attributes(item: Item) -> Vec<Attribute> {
    item.into_iter().map(|(name, value)| Attribute { name, value: from_sdk(value) }).collect()
}

fn to_sdk(value: WitValue) -> AttributeValue {
    match value {
        WitValue::S(text) => AttributeValue::S(text),
        WitValue::N(number) => AttributeValue::N(number),
        WitValue::B(bytes) => AttributeValue::B(Blob::new(bytes)),
        WitValue::Ns(numbers) => AttributeValue::Ns(numbers),
        // A lock writes no other types.
        WitValue::Other(_) => AttributeValue::Null(true),
    }
}

/// For types other than text, number, bytes and set of numbers, a lock needs only the name of the type.
fn from_sdk(value: AttributeValue) -> WitValue {
    let other = match value {
        AttributeValue::S(text) => return WitValue::S(text),
        AttributeValue::N(number) => return WitValue::N(number),
        AttributeValue::B(bytes) => return WitValue::B(bytes.into_inner()),
        AttributeValue::Ns(numbers) => return WitValue::Ns(numbers),
        AttributeValue::Bool(_) => "BOOL",
        AttributeValue::Null(_) => "NULL",
        AttributeValue::L(_) => "L",
        AttributeValue::M(_) => "M",
        AttributeValue::Ss(_) => "SS",
        AttributeValue::Bs(_) => "BS",
        _ => "of an unknown type",
    };
    WitValue::Other(other.to_owned())
}
