//! Which locks a workflow holds: the index `byWorkflow` of the lock table.
//!
//! A row is in the index only while a workflow holds its lock. The index has keys alone and is
//! eventually consistent. So it shows where to look, but each row must be read before it is changed.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockKey;
use lambda_lock_functions::{Config, ConfigError, Failure, with_causes};
use lambda_lock_protocol::schema::WORKFLOW;
use std::collections::HashMap;

const NAME: &str = "byWorkflow";
#[derive(Debug)]
pub(crate) struct Index {
    dynamodb: Client,
    table: String,
    key_attribute: String,
    sort_key_attribute: Option<String>,
}

impl Index {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let (key_attribute, sort_key_attribute) = config.key_attributes();
        Ok(Self {
            dynamodb: config.impatient_dynamodb()?,
            table: config.table().to_owned(),
            key_attribute: key_attribute.to_owned(),
            sort_key_attribute: sort_key_attribute.map(str::to_owned),
        })
    }

    /// Returns the keys of the locks that this workflow holds, or held shortly before.
    pub(crate) async fn keys_of(&self, workflow: &str) -> Result<Vec<LockKey>, Failure> {
        let mut pages = self
            .dynamodb
            .query()
            .table_name(&self.table)
            .index_name(NAME)
            .key_condition_expression("#workflow = :workflow")
            .expression_attribute_names("#workflow", WORKFLOW)
            .expression_attribute_values(":workflow", AttributeValue::S(workflow.to_owned()))
            .into_paginator()
            .send();
        let mut keys = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| self.failure(&error))?;
            keys.extend(page.items().iter().filter_map(|item| self.key(item)));
        }
        Ok(keys)
    }

    /// Returns the key in an item of the index. Every item has the table's key attributes, and they
    /// are texts.
    fn key(&self, item: &HashMap<String, AttributeValue>) -> Option<LockKey> {
        let text = |name: &String| item.get(name)?.as_s().ok().cloned();
        let sort_key = self.sort_key_attribute.as_ref().map(text);
        Some(LockKey::new(text(&self.key_attribute)?, sort_key.map_or(Some(None), |text| text.map(Some))?))
    }

    fn failure<E, R>(&self, error: &SdkError<E, R>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        let table = &self.table;
        let said = error.message().unwrap_or("no reason was given");
        match error.code() {
            Some("ResourceNotFoundException" | "ValidationException") => Failure::lock_table(format!(
                "the index {NAME} of the lock table {table:?} cannot be used: {said}; it needs the partition key \
                 {WORKFLOW}, and keys alone"
            )),
            Some("AccessDeniedException" | "UnrecognizedClientException" | "ExpiredTokenException") => {
                Failure::lock_table(format!(
                    "access to the index {NAME} of the lock table {table:?} is denied: {said}; check the role's actions"
                ))
            }
            _ => Failure::unknown(format!(
                "the index {NAME} of the lock table {table:?} did not respond in time; retry the call (cause: {})",
                with_causes(error)
            )),
        }
    }
}
