//! A state machine of the repository, and the changes that a test makes to it.

use crate::lambda::{arn, workspace};
use anyhow::Context;
use serde_json::{Value, json};

/// The placeholders in the definitions, and the functions that replace them.
const SUBSTITUTIONS: [(&str, &str); 2] = [("${LockTaskArn}", "lock-task"), ("${WorkArn}", "sample-work")];

/// A definition in the Amazon States Language.
#[derive(Clone, Debug)]
pub struct Definition {
    document: Value,
    /// The name that the state machine sees as its own.
    name: Option<String>,
    redrives: u32,
}

impl Definition {
    /// Reads `deploy/statemachines/{name}.asl.json` and replaces the placeholders by the functions' names.
    ///
    /// # Errors
    /// Returns an error if there is no such file, or if it is not JSON.
    pub fn read(name: &str) -> anyhow::Result<Self> {
        let path = workspace().join("deploy/statemachines").join(name).with_extension("asl.json");
        let mut text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        for (word, function) in SUBSTITUTIONS {
            text = text.replace(word, &arn(function));
        }
        let document = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        Ok(Self { document, name: None, redrives: 0 })
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
        set(&mut self.document, "maxRetryAfterSeconds", &json!(1));
        self
    }

    /// Sets the timeout of an execution.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.document["TimeoutSeconds"] = json!(seconds);
        self
    }

    /// Sets the name that the state machine sees as its own. On this machine every execution has its own
    /// state machine.
    #[must_use]
    pub fn renamed(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Returns the definition of the nth redrive, which starts at this state.
    pub(super) fn redriven(mut self, redrives: u32, state: &str) -> Self {
        self.document["StartAt"] = json!(state);
        self.redrives = redrives;
        self
    }

    /// Returns the text for the engine. The redrive count is replaced by a number, because the engine does
    /// not know it.
    pub(super) fn text(&self) -> String {
        let mut document = self.document.clone();
        if let Some(name) = &self.name {
            call(&mut document, name);
        }
        document.to_string().replace("$$.Execution.RedriveCount", &self.redrives.to_string())
    }
}

/// Replaces the state machine's own name by this one, as an argument and as the value of a field.
fn call(value: &mut Value, name: &str) {
    const NAME: &str = "$$.StateMachine.Name";
    match value {
        Value::Object(fields) => {
            let whole: Vec<_> =
                fields.iter().filter(|(_, value)| *value == NAME).map(|(field, _)| field.clone()).collect();
            for field in whole {
                fields.remove(&field);
                fields.insert(field.trim_end_matches(".$").to_owned(), json!(name));
            }
            fields.values_mut().for_each(|value| call(value, name));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| call(value, name)),
        Value::String(text) => *text = text.replace(NAME, &format!("'{name}'")),
        _ => {}
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
