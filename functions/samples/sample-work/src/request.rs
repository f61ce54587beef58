//! Reads a request: the step, the grant under which it runs, and the failures to simulate.
use lambda_lock::{LockKey, MAX_NAME_BYTES};
use lambda_lock_functions::{Failure, Fields};
use serde_json::Value;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) step: Step,
    pub(crate) counter: String,
    /// The fencing token of the grant under which the step runs.
    pub(crate) fencing_token: u64,
    /// The name of the caller that counts.
    pub(crate) writer: String,
    pub(crate) simulate: Option<Simulate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Read,
    Write(u64),
    /// Reads the counter and writes it increased by one.
    Add,
}

/// The failures to simulate, for demonstrations and tests.
#[derive(Clone, Debug)]
pub(crate) struct Simulate {
    /// How long a step takes before its effect.
    pub(crate) takes: Duration,
    fail_at: Option<String>,
    crash_at: Option<String>,
}

impl Step {
    fn read(fields: &mut Fields) -> Result<Self, Failure> {
        match fields.text("step")?.as_str() {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write(fields.whole_number("value")?)),
            "add" => Ok(Self::Add),
            _ => Err(fields.malformed("step", "give read, write or add")),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write(_) => "write",
            Self::Add => "add",
        }
    }
}

impl Request {
    pub(crate) fn read(mut fields: Fields) -> Result<Self, Failure> {
        let request = Self {
            step: Step::read(&mut fields)?,
            counter: fields.name("counter", LockKey::MAX_KEY_BYTES)?,
            fencing_token: fields.whole_number("fencingToken")?,
            writer: fields.name("writer", MAX_NAME_BYTES)?,
            simulate: Simulate::read(&mut fields),
        };
        fields.nothing_else()?;
        Ok(request)
    }
}

impl Simulate {
    /// Reads `simulate` from the execution's input. The rest of the input belongs to the work.
    fn read(fields: &mut Fields) -> Option<Self> {
        let Some(Value::Object(mut input)) = fields.take("input") else { return None };
        let simulate = input.remove("simulate")?;
        let text = |name: &str| simulate[name].as_str().map(str::to_owned);
        let takes = Duration::from_millis(simulate["stepMillis"].as_u64().unwrap_or_default());
        Some(Self { takes, fail_at: text("failAt"), crash_at: text("crashAt") })
    }

    pub(crate) fn fails(&self, step: Step) -> bool {
        self.fail_at.as_deref() == Some(step.name())
    }

    pub(crate) fn crashes(&self, step: Step) -> bool {
        self.crash_at.as_deref() == Some(step.name())
    }
}
