//! Which locks a workflow holds: the index `byWorkflow` of the lock table.
//!
//! Rows are in it only while a workflow holds them. It has keys alone and is eventually consistent, so
//! what it says is where to look, and never what is true.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::LockKey;
use lambda_lock::protocol::schema::WORKFLOW;
use lambda_lock_functions::{Config, ConfigError, Failure};
use std::collections::HashMap;

const NAME: &str = "byWorkflow";
/// The index.
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

    /// The keys of the locks that this workflow holds, or held a moment ago.
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

    /// Every row of the index has the table's keys, and they are texts.
    fn key(&self, item: &HashMap<String, AttributeValue>) -> Option<LockKey> {
        let text = |name: &String| item.get(name)?.as_s().ok().cloned();
        let sort_key = self.sort_key_attribute.as_ref().map(text);
        Some(LockKey::new(text(&self.key_attribute)?, sort_key.map_or(Some(None), |text| text.map(Some))?))
    }

    fn failure<E: ProvideErrorMetadata, R>(&self, error: &SdkError<E, R>) -> Failure {
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
                "the index {NAME} of the lock table {table:?} could not be asked in time; ask again"
            )),
        }
    }
}
