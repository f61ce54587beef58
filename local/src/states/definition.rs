//! A state machine as it is in the repository, and what a test changes in it.

use crate::lambda::{arn, workspace};
use anyhow::Context;
use serde_json::{Value, json};

/// The functions that the template puts in the place of these words.
const SUBSTITUTIONS: [(&str, &str); 2] = [("${LockTaskArn}", "lock-task"), ("${WorkArn}", "sample-work")];

/// A definition in the Amazon States Language.
#[derive(Clone, Debug)]
pub struct Definition {
    document: Value,
    /// What the state machine believes to be called.
    name: Option<String>,
    redrives: u32,
}

impl Definition {
    /// Reads `deploy/statemachines/{name}.asl.json`, and puts the functions' names in.
    ///
    /// # Errors
    /// When there is none, or it is no JSON.
    pub fn read(name: &str) -> anyhow::Result<Self> {
        let path = workspace().join("deploy/statemachines").join(name).with_extension("asl.json");
        let mut text = std::fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        for (word, function) in SUBSTITUTIONS {
            text = text.replace(word, &arn(function));
        }
        let document = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
        Ok(Self { document, name: None, redrives: 0 })
    }

    /// The definition itself.
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// Every lock is asked for and renewed for this long, and looked at again at least every second: no test
    /// waits for a minute.
    #[must_use]
    pub fn with_lease(mut self, seconds: f64) -> Self {
        set(&mut self.document, "leaseSeconds", &json!(seconds));
        set(&mut self.document, "maxRetryAfterSeconds", &json!(1));
        self
    }

    /// An execution may take this long.
    #[must_use]
    pub fn with_timeout(mut self, seconds: u32) -> Self {
        self.document["TimeoutSeconds"] = json!(seconds);
        self
    }

    /// The state machine believes to be called this: on this machine every execution has one of its own.
    #[must_use]
    pub fn renamed(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The same, redriven for the nth time from this state.
    pub(super) fn redriven(mut self, redrives: u32, state: &str) -> Self {
        self.document["StartAt"] = json!(state);
        self.redrives = redrives;
        self
    }

    /// The text for the engine, which knows no redrive count.
    pub(super) fn text(&self) -> String {
        let mut document = self.document.clone();
        if let Some(name) = &self.name {
            call(&mut document, name);
        }
        document.to_string().replace("$$.Execution.RedriveCount", &self.redrives.to_string())
    }
}

/// Puts a name in the place of the state machine's own: as an argument, and as the whole of a field.
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

/// Sets a field wherever it stands.
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
