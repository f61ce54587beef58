//! The counter that the lock guards. Its item remembers the largest fencing token that read or wrote it,
//! and refuses smaller ones.

use super::Options;
use anyhow::Context;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue,
    ReturnValuesOnConditionCheckFailure, ScalarAttributeType,
};
use std::collections::HashMap;

const TABLE: &str = "counters";
const ID: &str = "id";
const VALUE: &str = "count";
const LAST_TOKEN: &str = "lastToken";
const NOT_FENCED_OFF: &str = "attribute_not_exists(#last) OR #last <= :token";

/// Whether the counter refuses smaller tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    Up,
    Down,
}

impl Fence {
    pub(crate) fn of(options: &Options) -> Self {
        if options.unfenced { Self::Down } else { Self::Up }
    }
}

/// What the counter answers to a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fenced<T> {
    Passed(T),
    /// A holder with this larger token has read or written the counter.
    Refused {
        last_token: u64,
    },
}

/// A number that is read and written in two requests, so it needs a lock.
#[derive(Debug)]
pub(crate) struct Counter {
    client: Client,
    fence: Fence,
}

impl Counter {
    pub(crate) fn new(client: Client, fence: Fence) -> Self {
        Self { client, fence }
    }

    pub(crate) async fn create_table(&self) -> anyhow::Result<()> {
        let id = AttributeDefinition::builder().attribute_name(ID).attribute_type(ScalarAttributeType::S).build()?;
        let key = KeySchemaElement::builder().attribute_name(ID).key_type(KeyType::Hash).build()?;
        let create = self.client.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
        create
            .attribute_definitions(id)
            .key_schema(key)
            .send()
            .await
            .context("the table of the counter could not be created")?;
        Ok(())
    }

    /// Returns the counter's value. It is zero before the first write.
    pub(crate) async fn value(&self) -> anyhow::Result<u64> {
        let get = self.client.get_item().table_name(TABLE).key(ID, key()).consistent_read(true);
        let item = get.send().await.context("the counter could not be read")?.item;
        value(item.as_ref())
    }

    /// Reads the counter's value and raises its fence in one request. Otherwise an earlier holder could still write between
    /// this read and the write that depends on it.
    pub(crate) async fn read(&self, token: u64) -> anyhow::Result<Fenced<u64>> {
        let update = self.fenced(token).update_expression("SET #last = :token").return_values(ReturnValue::AllNew);
        match update.send().await {
            Ok(updated) => Ok(Fenced::Passed(value(updated.attributes())?)),
            Err(error) => refused(error.into_service_error()).context("the counter could not be read"),
        }
    }

    /// Replaces the counter's value, unless a holder with a larger token has read or written it.
    pub(crate) async fn write(&self, value: u64, token: u64) -> anyhow::Result<Fenced<()>> {
        let update = self
            .fenced(token)
            .update_expression("SET #value = :value, #last = :token")
            .expression_attribute_names("#value", VALUE)
            .expression_attribute_values(":value", AttributeValue::N(value.to_string()));
        match update.send().await {
            Ok(_) => Ok(Fenced::Passed(())),
            Err(error) => refused(error.into_service_error()).context("the counter could not be written"),
        }
    }

    fn fenced(&self, token: u64) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(TABLE)
            .key(ID, key())
            .set_condition_expression((self.fence == Fence::Up).then(|| NOT_FENCED_OFF.to_owned()))
            .expression_attribute_names("#last", LAST_TOKEN)
            .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }
}

/// Returns that the fence refused the request, or the error with which it failed otherwise.
fn refused<T>(error: UpdateItemError) -> anyhow::Result<Fenced<T>> {
    match &error {
        UpdateItemError::ConditionalCheckFailedException(refused) => {
            let item = refused.item().context("a refused request returned no item")?;
            Ok(Fenced::Refused { last_token: number(item, LAST_TOKEN)? })
        }
        _ => Err(error.into()),
    }
}

fn value(item: Option<&HashMap<String, AttributeValue>>) -> anyhow::Result<u64> {
    item.filter(|item| item.contains_key(VALUE)).map_or(Ok(0), |item| number(item, VALUE))
}

fn key() -> AttributeValue {
    AttributeValue::S("the counter".to_owned())
}

fn number(item: &HashMap<String, AttributeValue>, name: &str) -> anyhow::Result<u64> {
    let value = item
        .get(name)
        .and_then(|value| value.as_n().ok())
        .with_context(|| format!("the item has no number {name:?}"))?;
    value.parse().with_context(|| format!("{name} is {value:?}"))
}
