//! A state machine of the repository, and the changes that a test makes to it.

use crate::lambda::{arn, workspace};
use anyhow::Context;
use serde_json::{Value, json};

/// The placeholders of functions in the definitions, and the functions.
const FUNCTIONS: [(&str, &str); 2] = [("${LockTaskArn}", "lock-task"), ("${WorkArn}", "sample-work")];

/// A definition in the Amazon States Language.
#[derive(Clone, Debug)]
pub struct Definition {
    document: Value,
    /// The name of the state machine, if it is not that of the execution.
    pub(super) name: Option<String>,
}

impl Definition {
    /// Reads `deploy/statemachines/{name}.asl.json` and replaces the placeholders by the functions' names.
    ///
    /// # Errors
    /// Returns an error if there is no such file, or if it is not JSON.
    pub fn read(name: &str) -> anyhow::Result<Self> {
        let path = workspace().join("deploy/statemachines").join(name).with_extension("asl.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        let mut text = text.replace("${Partition}", "aws");
        for (word, function) in FUNCTIONS {
            text = text.replace(word, &arn(function));
        }
        let document = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        Ok(Self::new(document))
    }

    /// A definition that is not of the repository.
    pub fn new(document: Value) -> Self {
        Self { document, name: None }
    }

    /// The definition as JSON.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Sets the lease of every lock, and the longest pause between two looks at a held lock to 1 s. So no
    /// test waits for a minute.
    #[must_use]
    pub fn with_lease(mut self, seconds: f64) -> Self {
        set(&mut self.document, "leaseSeconds", &json!(seconds));
        self.with_longest_wait(1)
    }

    /// Sets the longest pause between two looks at a held lock.
    #[must_use]
    pub fn with_longest_wait(mut self, seconds: u32) -> Self {
        set(&mut self.document, "maxRetryAfterSeconds", &json!(seconds));
        self
    }

    /// Sets the number of places, where a lock is one of several places.
    #[must_use]
    pub fn with_permits(mut self, places: u32) -> Self {
        set(&mut self.document, "permits", &json!(places));
        self
    }

    /// Replaces a part of every text that contains it.
    ///
    /// # Panics
    /// Panics if no text does.
    #[must_use]
    pub fn replacing(mut self, part: &str, by: &str) -> Self {
        assert!(replace(&mut self.document, part, by), "the definition has no {part:?}");
        self
    }

    /// Sets every pause between two attempts to at most this long.
    #[must_use]
    pub fn with_pauses(mut self, seconds: f64) -> Self {
        set(&mut self.document, "IntervalSeconds", &json!(seconds));
        set(&mut self.document, "MaxDelaySeconds", &json!(seconds));
        self
    }

    /// Sets the timeout of one task.
    #[must_use]
    pub fn with_task_timeout(mut self, task: &str, seconds: u32) -> Self {
        self.document["States"][task]["TimeoutSeconds"] = json!(seconds);
        self
    }

    /// Sets the timeout of an execution.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.document["TimeoutSeconds"] = json!(seconds);
        self
    }

    /// Sets the name of the state machine. Executions of one name have one state machine. Without a name each
    /// execution has a state machine of its own.
    #[must_use]
    pub fn renamed(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
}

/// Replaces a part of every text. Returns whether there was one.
fn replace(value: &mut Value, part: &str, by: &str) -> bool {
    match value {
        Value::String(text) => {
            let found = text.contains(part);
            *text = text.replace(part, by);
            found
        }
        Value::Object(fields) => fields.values_mut().fold(false, |found, value| replace(value, part, by) | found),
        Value::Array(values) => values.iter_mut().fold(false, |found, value| replace(value, part, by) | found),
        _ => false,
    }
}

/// Sets a field at every place where it is present.
fn set(value: &mut Value, name: &str, to: &Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                if field == name { *value = to.clone() } else { set(value, name, to) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| set(value, name, to)),
        _ => {}
    }
}
