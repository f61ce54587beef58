//! Verdicts that are errors, each with a sentence.

use crate::bindings::exports::lambda_lock::lock::types::{Error, ErrorKind};
use crate::call::NoVerdict;
use lambda_lock::LockKey;
use lambda_lock::protocol::{Invalid, InvalidRecord, Rejection};

fn error(kind: ErrorKind, message: String) -> Error {
    Error { kind, message, cause: None }
}

pub(crate) fn lost(key: &LockKey) -> Error {
    error(ErrorKind::Lost, format!("the lock {key} is no longer ours: stop, and do not write"))
}

pub(crate) fn unknown(key: &LockKey, what: &str) -> Error {
    let message = format!("nobody knows whether the lock {key} was {what}: no usable answer came in time; ask again");
    error(ErrorKind::Unknown, message)
}

pub(crate) fn unavailable(key: &LockKey, what: &str) -> Error {
    let message = format!("the lock {key} was not {what}: DynamoDB refuses requests for now; ask again later");
    error(ErrorKind::Unavailable, message)
}

pub(crate) fn released_without_data(key: &LockKey, reason: &str) -> Error {
    error(ErrorKind::InvalidRequest, format!("the lock {key} was released, but without its data: {reason}"))
}

pub(crate) fn rejected(key: &LockKey, rejection: Rejection) -> Error {
    match rejection {
        Rejection::Invalid(message) => error(
            ErrorKind::InvalidRequest,
            format!("DynamoDB finds the request for the lock {key} invalid: {message}"),
        ),
        Rejection::Table(message) => error(
            ErrorKind::Table,
            format!(
                "the lock table cannot be used for the lock {key}: {message}; check its name, Region and key schema"
            ),
        ),
        Rejection::Denied(message) => error(
            ErrorKind::Denied,
            format!(
                "access is denied for the lock {key}: {message}; check the credentials, the Region, and the role's actions on the table"
            ),
        ),
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        error(ErrorKind::InvalidRequest, invalid.to_string())
    }
}

impl From<InvalidRecord> for Error {
    fn from(invalid: InvalidRecord) -> Self {
        error(ErrorKind::InvalidRecord, invalid.to_string())
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
