//! The environment of a function: reads variables, and says which one is wrong.

use std::env::{self, VarError};
use std::fmt;

/// Reads a variable from the environment of this process.
pub fn process(name: &str) -> Result<Option<String>, ConfigError> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(ConfigError(format!("{name} is not valid UTF-8"))),
    }
}

/// An environment: returns the value of a variable, if it is set.
pub type Environment<'a> = dyn Fn(&str) -> Result<Option<String>, ConfigError> + 'a;

/// Why a function cannot start. The sentence names the variable.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    /// Creates the error from a sentence that names the variable.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Returns the value of a variable. An empty variable counts as not set.
pub fn optional(environment: &Environment<'_>, name: &str) -> Result<Option<String>, ConfigError> {
    Ok(environment(name)?.filter(|value| !value.is_empty()))
}

/// Returns the value of a required variable. `what` completes the error "{name} is not set: give …".
pub fn required(environment: &Environment<'_>, name: &str, what: &str) -> Result<String, ConfigError> {
    optional(environment, name)?.ok_or_else(|| ConfigError(format!("{name} is not set: give {what}")))
}

/// Returns the value of an optional variable that is `true` or `false`.
pub fn flag(environment: &Environment<'_>, name: &str) -> Result<Option<bool>, ConfigError> {
    match optional(environment, name)?.as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(ConfigError(format!("{name} is {other:?}: give true or false"))),
    }
}

/// The variable that lets events ask for failures.
pub(crate) const ALLOW_SIMULATE: &str = "ALLOW_SIMULATE";

/// Whether events may ask for delays, failures and crashes: only where `ALLOW_SIMULATE` is `true`.
pub fn may_simulate(environment: &Environment<'_>) -> Result<bool, ConfigError> {
    Ok(flag(environment, ALLOW_SIMULATE)?.unwrap_or(false))
}
