//! A counter that only the newest grant may change. It is an example of fencing at the resource.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use lambda_lock_functions::{Config, ConfigError, Environment, Failure, optional, quoted, with_causes};

const GUARD: &str = "attribute_not_exists(lastToken) OR lastToken <= :token";
const REFUSED: &str = "ConditionalCheckFailedException";

/// The most writers that a counter remembers. An item of DynamoDB has at most 400 KB, and a writer's name up to 2 KB.
pub(crate) const MAX_WRITERS: usize = 100;

/// A table of counters. `counter` is the key, `value` the count, `lastToken` the fence, and `writers` the last callers
/// that counted.
#[derive(Debug)]
pub(crate) struct Counters {
    dynamodb: Client,
    table: String,
}

impl Counters {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let table = optional(environment, "WORK_TABLE")?;
        let table =
            table.ok_or_else(|| ConfigError::new("WORK_TABLE is not set: give the name of the table of counters"))?;
        Ok(Self { dynamodb: config.impatient_dynamodb()?, table })
    }

    /// Reads a counter and raises its fence, so that earlier holders can no longer write. Without that
    /// an older grant could change the counter after this read.
    pub(crate) async fn read(&self, counter: &str, token: u64) -> Result<u64, Failure> {
        let update = self.guarded(counter, token).update_expression("SET lastToken = :token");
        let updated = update.return_values(ReturnValue::AllNew).send().await;
        let row = updated.map_err(|error| self.failure(counter, &error))?.attributes.unwrap_or_default();
        Ok(row.get("value").and_then(|value| value.as_n().ok()?.parse().ok()).unwrap_or(0))
    }

    /// Writes a counter. It may be repeated under the same grant. When the set of writers is full, it begins anew.
    pub(crate) async fn write(&self, counter: &str, token: u64, value: u64, writer: &str) -> Result<(), Failure> {
        let most = AttributeValue::N(MAX_WRITERS.to_string());
        let added = self
            .writing(counter, token, value, writer)
            .update_expression("SET #value = :value, lastToken = :token ADD writers :writer")
            .condition_expression(format!("({GUARD}) AND (attribute_not_exists(writers) OR size(writers) < :most)"))
            .expression_attribute_values(":most", most)
            .send()
            .await;
        let written = match added {
            // The set is full, or the grant is over: the second request tells.
            Err(error) if error.code() == Some(REFUSED) => {
                let write = self.writing(counter, token, value, writer);
                write.update_expression("SET #value = :value, lastToken = :token, writers = :writer").send().await
            }
            other => other,
        };
        written.map(drop).map_err(|error| self.failure(counter, &error))
    }

    fn writing(&self, counter: &str, token: u64, value: u64, writer: &str) -> UpdateItemFluentBuilder {
        self.guarded(counter, token)
            .expression_attribute_names("#value", "value")
            .expression_attribute_values(":value", AttributeValue::N(value.to_string()))
            .expression_attribute_values(":writer", AttributeValue::Ss(vec![writer.to_owned()]))
    }

    /// Returns an update that is refused after a larger token was seen.
    fn guarded(&self, counter: &str, token: u64) -> UpdateItemFluentBuilder {
        self.dynamodb
            .update_item()
            .table_name(&self.table)
            .key("counter", AttributeValue::S(counter.to_owned()))
            .condition_expression(GUARD)
            .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
    }

    fn failure<R: std::fmt::Debug + 'static>(&self, counter: &str, error: &SdkError<UpdateItemError, R>) -> Failure {
        let table = &self.table;
        match error.code() {
            Some(REFUSED) => Failure::lost(format!(
                "the counter {} has seen a larger fencing token: another caller was granted the lock; stop",
                quoted(counter)
            )),
            Some("ResourceNotFoundException" | "AccessDeniedException" | "ValidationException") => {
                Failure::step_failed(&format!(
                    "the table {table:?} cannot be used: {}",
                    error.message().unwrap_or("no reason was given")
                ))
            }
            _ => Failure::step_failed(&format!("the table {table:?} did not respond in time: {}", with_causes(error))),
        }
    }
}
