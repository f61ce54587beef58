//! Reads from a record of a DynamoDB stream whom to wake.
//!
//! A record has the key of the changed item in `dynamodb.Keys`, and the item as it is now in `dynamodb.NewImage`, both in
//! DynamoDB's JSON. A deleted item has no image.

use lambda_lock::LockKey;
use lambda_lock_functions::{Config, Failure};
use lambda_lock_protocol::once::NAMESPACE;
use lambda_lock_protocol::{Item, Line, Record, Schema, Value, WAKE, schema};
use serde_json::Value as Json;
use std::ops::RangeInclusive;

/// Whom to wake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// The key of the lock's row.
    pub(crate) lock: LockKey,
    /// From the next one in line to the last one that sleeps.
    pub(crate) tickets: RangeInclusive<u64>,
    /// Those that were given up. Some may be among these tickets.
    pub(crate) left: Vec<u64>,
}

/// Which records are about locks.
#[derive(Debug)]
pub(crate) struct Reader {
    schema: Schema,
    /// What the keys of its locks begin with.
    prefix: String,
}

impl Reader {
    pub(crate) fn new(config: &Config, prefix: String) -> Self {
        let (key, sort_key) = config.key_attributes();
        let (key_attribute, sort_key_attribute) = (key.to_owned(), sort_key.map(str::to_owned));
        Self { schema: Schema { key_attribute, sort_key_attribute, ..Schema::default() }, prefix }
    }

    /// Returns whom to wake, if the record shows a free lock and somebody sleeps in its line.
    ///
    /// # Errors
    /// Fails if the record or its row cannot be read. The failure has the lock's key as far as it is known.
    pub(crate) fn next(&self, record: &Json) -> Result<Option<Next>, Failure> {
        let change = &record["dynamodb"];
        let lock = self.key(&change["Keys"]).ok_or_else(|| self.without_key())?;
        match change.get("NewImage") {
            Some(image) if self.is_mine(&lock) => {
                let line = self.line(image).map_err(|failure| failure.of_lock(&lock))?;
                Ok(line.and_then(|line| Some(Next { lock, tickets: line.to_wake()?, left: line.left })))
            }
            _ => Ok(None),
        }
    }

    fn key(&self, keys: &Json) -> Option<LockKey> {
        let text = |name: &String| keys[name]["S"].as_str().map(str::to_owned);
        let sort_key = self.schema.sort_key_attribute.as_ref().map(text);
        Some(LockKey::new(text(&self.schema.key_attribute)?, sort_key.map_or(Some(None), |text| text.map(Some))?))
    }

    fn without_key(&self) -> Failure {
        let names = [Some(&self.schema.key_attribute), self.schema.sort_key_attribute.as_ref()];
        let names: Vec<_> = names.into_iter().flatten().map(String::as_str).collect();
        Failure::invalid_record(format!(
            "a record of the stream has no key of the lock table ({}): check the stream, and the names of the table's keys",
            names.join(", ")
        ))
    }

    /// Whether a lock may have this key. A wake item and idempotent work have others.
    fn is_mine(&self, key: &LockKey) -> bool {
        let key = key.key();
        key.starts_with(&self.prefix) && !key.starts_with(WAKE) && !key.starts_with(NAMESPACE)
    }

    /// The line of a lock that is free, if somebody may sleep in it.
    fn line(&self, image: &Json) -> Result<Option<Line>, Failure> {
        let row = row(image).ok_or_else(|| {
            Failure::invalid_record("the image of the row in the stream is no JSON of DynamoDB: check who sends it")
        })?;
        // As the template's filter has it. Nobody sleeps for other rows, whatever else they are.
        if row.get(schema::RELEASED).is_none() || row.get(schema::LAST_SLEEPER).is_none() {
            return Ok(None);
        }
        let line = Line::of_row(&row);
        let record = Record::read(row, &self.schema).map_err(|error| Failure::invalid_record(error.to_string()))?;
        // The line means nothing under a version of another client. And nobody is granted a frozen lock: its thaw is a change
        // too.
        let is_next_granted = record.is_ours() && record.freeze_reason.is_none();
        Ok(line.filter(|_| is_next_granted))
    }
}

/// Reads DynamoDB's JSON: an object in which each attribute is an object of its type and its value.
fn row(image: &Json) -> Option<Item> {
    image.as_object()?.iter().map(|(name, value)| Some((name.clone(), attribute(value)?))).collect()
}

fn attribute(value: &Json) -> Option<Value> {
    let (type_, value) = value.as_object()?.iter().next()?;
    let text = || value.as_str().map(str::to_owned);
    match type_.as_str() {
        "S" => text().map(Value::S),
        "N" => text().map(Value::N),
        // Whom to wake does not depend on the bytes.
        "B" => Some(Value::B(Vec::new())),
        "NS" => {
            value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<_>>().map(Value::Ns)
        }
        _ => Some(Value::Other("another one than S, N, B and NS")),
    }
}
