//! The batch that SQS delivers, and the response to it.

use lambda_lock_functions::{Event, Failure};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A batch. Other fields are ignored.
#[derive(Deserialize)]
struct Batch {
    #[serde(rename = "Records")]
    records: Vec<Message>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Message {
    #[serde(rename = "messageId")]
    pub(crate) id: String,
    body: String,
}

impl Message {
    /// Reads the messages of an event.
    pub(crate) fn all(event: &RawValue) -> Result<Vec<Self>, Failure> {
        let batch: Batch = serde_json::from_str(event.get()).map_err(|error| {
            // Does not use serde's message, because it quotes the input.
            let (line, column) = (error.line(), error.column());
            Failure::invalid_request(format!(
                "Records is missing or malformed: the event is no batch of an SQS queue (line {line}, column {column})"
            ))
        })?;
        Ok(batch.records)
    }

    /// Returns the body as the event of charge-order.
    pub(crate) fn event(&self) -> Result<Event, Failure> {
        RawValue::from_string(self.body.clone())
            .map_err(|error| Failure::invalid_request(format!("the body of the message is not valid JSON: {error}")))
    }
}

/// Returns the response that lists the failed messages. An empty list means that all are done.
pub(crate) fn answer(failed: impl IntoIterator<Item = String>) -> Value {
    let failures: Vec<_> = failed.into_iter().map(|id| json!({ "itemIdentifier": id })).collect();
    json!({ "batchItemFailures": failures })
}
