//! The counter that the lock guards. Its item remembers the largest fencing token that wrote it,
//! and refuses smaller ones.

use super::Options;
use anyhow::{Context, anyhow};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValuesOnConditionCheckFailure,
    ScalarAttributeType,
};
use std::collections::HashMap;

const TABLE: &str = "counters";
const ID: &str = "id";
const VALUE: &str = "count";
const LAST_TOKEN: &str = "lastToken";
const NOT_FENCED_OFF: &str = "attribute_not_exists(#last) OR #last <= :token";

/// Whether the counter refuses writes with smaller tokens.
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

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Applied,
    /// A holder with this larger token wrote before.
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
    pub(crate) async fn read(&self) -> anyhow::Result<u64> {
        let get = self.client.get_item().table_name(TABLE).key(ID, key()).consistent_read(true);
        let item = get.send().await.context("the counter could not be read")?.item;
        item.as_ref().map_or(Ok(0), |item| number(item, VALUE))
    }

    /// Replaces the counter's value, unless a holder with a larger token has written it.
    pub(crate) async fn write(&self, value: u64, token: u64) -> anyhow::Result<Written> {
        let update = self
            .client
            .update_item()
            .table_name(TABLE)
            .key(ID, key())
            .update_expression("SET #value = :value, #last = :token")
            .set_condition_expression((self.fence == Fence::Up).then(|| NOT_FENCED_OFF.to_owned()))
            .expression_attribute_names("#value", VALUE)
            .expression_attribute_names("#last", LAST_TOKEN)
            .expression_attribute_values(":value", AttributeValue::N(value.to_string()))
            .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = update.send().await else { return Ok(Written::Applied) };
        let error = error.into_service_error();
        if !error.is_conditional_check_failed_exception() {
            return Err(anyhow!(error).context("the counter could not be written"));
        }
        Ok(Written::Refused { last_token: last_token(&error)? })
    }
}

fn last_token(error: &aws_sdk_dynamodb::operation::update_item::UpdateItemError) -> anyhow::Result<u64> {
    use aws_sdk_dynamodb::operation::update_item::UpdateItemError::ConditionalCheckFailedException;
    match error {
        ConditionalCheckFailedException(refused) => {
            number(refused.item().context("a refused write returned no item")?, LAST_TOKEN)
        }
        _ => Err(anyhow!("the write failed for another reason than its condition: {error}")),
    }
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
