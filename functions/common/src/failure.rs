//! How a function fails: under a name that `Retry` and `Catch` match, with a sentence for people.

use lambda_lock::lambda::error_type;
use lambda_runtime::Diagnostic;
use std::fmt;

/// A failure as it leaves a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    error_type: &'static str,
    message: String,
}

impl Failure {
    /// The event is malformed; the sentence begins with the field.
    pub fn invalid_request(sentence: impl Into<String>) -> Self {
        Self { error_type: "InvalidRequest", message: sentence.into() }
    }

    /// The guarded work itself failed, and the lock is free again.
    pub fn work_failed(reason: &dyn fmt::Display) -> Self {
        Self { error_type: "WorkFailed", message: format!("the work failed, and the lock is free again: {reason}") }
    }

    /// The step of a workflow failed, which still holds its lock.
    pub fn step_failed(reason: &dyn fmt::Display) -> Self {
        Self { error_type: "WorkFailed", message: format!("the step failed; unlock before anything else: {reason}") }
    }

    /// The grant is no longer current, as the resource itself has seen.
    pub fn lost(sentence: impl Into<String>) -> Self {
        Self { error_type: "LockLost", message: sentence.into() }
    }

    /// The lock table cannot be used as it is deployed.
    pub fn lock_table(sentence: impl Into<String>) -> Self {
        Self { error_type: "LockTableError", message: sentence.into() }
    }

    /// DynamoDB could not be asked in time.
    pub fn unknown(sentence: impl Into<String>) -> Self {
        Self { error_type: "LockUnknown", message: sentence.into() }
    }

    /// The same failure, with what it means for the whole before it.
    #[must_use]
    pub fn because_of(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Whether the work failed, and nothing else.
    pub fn is_of_the_work(&self) -> bool {
        self.error_type == "WorkFailed"
    }

    /// The name.
    pub fn error_type(&self) -> &'static str {
        self.error_type
    }

    /// The sentence.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<lambda_lock::Error> for Failure {
    fn from(error: lambda_lock::Error) -> Self {
        Self { error_type: error_type(&error), message: error.to_string() }
    }
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        Diagnostic { error_type: failure.error_type.to_owned(), error_message: failure.message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_under_its_name() {
        let diagnostic = Diagnostic::from(Failure::work_failed(&"no paper"));
        assert_eq!(diagnostic.error_type, "WorkFailed");
        assert!(diagnostic.error_message.ends_with("no paper"), "{}", diagnostic.error_message);
    }
}
