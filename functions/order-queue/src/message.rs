//! What SQS delivers, and what it is answered.

use lambda_lock_functions::{Event, Failure};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A batch. What else AWS says in it, now or some day, does not matter here.
#[derive(Deserialize)]
struct Batch {
    #[serde(rename = "Records")]
    records: Vec<Message>,
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Message {
    #[serde(rename = "messageId")]
    pub(crate) id: String,
    body: String,
}

impl Message {
    /// The messages of an event.
    pub(crate) fn all(event: &RawValue) -> Result<Vec<Self>, Failure> {
        let batch: Batch = serde_json::from_str(event.get()).map_err(|error| {
            // Not what serde says: it quotes what it found.
            let (line, column) = (error.line(), error.column());
            Failure::invalid_request(format!(
                "Records is missing or malformed: the event is no batch of an SQS queue (line {line}, column {column})"
            ))
        })?;
        Ok(batch.records)
    }

    /// What it says, as the event of another function.
    pub(crate) fn event(&self) -> Result<Event, Failure> {
        RawValue::from_string(self.body.clone())
            .map_err(|error| Failure::invalid_request(format!("the body of the message is no JSON: {error}")))
    }
}

/// Which messages are to come again; none: all of them are done.
pub(crate) fn answer(failed: impl IntoIterator<Item = String>) -> Value {
    let failures: Vec<_> = failed.into_iter().map(|id| json!({ "itemIdentifier": id })).collect();
    json!({ "batchItemFailures": failures })
}
