//! Verdicts that are errors. Each has a sentence.

use crate::bindings::exports::lambda_lock::lock::types::{Error, ErrorKind};
use crate::call::NoVerdict;
use lambda_lock_protocol::LockKey;
use lambda_lock_protocol::{Failure, Invalid, Operation, Rejection};

fn error(kind: ErrorKind, message: String) -> Error {
    Error { kind, message, cause: None }
}

pub(crate) fn lost(key: &LockKey) -> Error {
    failed(&Failure::Lost, Operation::Renew, key)
}

/// Converts a failure of an operation on this lock to the host's error.
pub(crate) fn failed(failure: &Failure, operation: Operation, key: &LockKey) -> Error {
    let kind = match failure {
        Failure::Lost => ErrorKind::Lost,
        Failure::InvalidRecord(_) => ErrorKind::InvalidRecord,
        Failure::Rejected(Rejection::Table(_)) => ErrorKind::Table,
        Failure::Rejected(Rejection::Denied(_)) => ErrorKind::Denied,
        // This world has no transactions.
        Failure::Rejected(Rejection::Invalid(_)) | Failure::Cancelled(_) => ErrorKind::InvalidRequest,
        Failure::Throttled => ErrorKind::Unavailable,
        Failure::OutcomeUnknown => ErrorKind::Unknown,
    };
    error(kind, failure.text(operation, &[key]))
}

pub(crate) fn released_without_data(key: &LockKey, reason: &str) -> Error {
    error(ErrorKind::InvalidRequest, format!("the lock {key} was released, but without its data: {reason}"))
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        error(ErrorKind::InvalidRequest, invalid.to_string())
    }
}

impl From<NoVerdict> for Error {
    fn from(no_verdict: NoVerdict) -> Self {
        let message = match no_verdict {
            NoVerdict::Open => "there is no verdict yet: call `step` until it says `done`".to_owned(),
            NoVerdict::Taken => "the verdict was taken before: it can be taken once".to_owned(),
            NoVerdict::Random(given) => format!(
                "a step was given {given} random bytes: give 32 fresh ones of the operating system's generator; \
                 nothing was sent since"
            ),
        };
        error(ErrorKind::InvalidRequest, message)
    }
}
