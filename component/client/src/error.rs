//! Converts the crate's errors to those of the WIT package.

use crate::bindings::exports::lambda_lock::lock::locks::{self, SeveralError};
use crate::bindings::exports::lambda_lock::lock::types::{self, ErrorKind, Shortfall};
use crate::convert::{epoch_millis, millis};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use lambda_lock::{Error, Refusal, SavedLock};

impl From<Error> for types::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            lambda_lock::ErrorKind::Held => match error.refusal() {
                Some(refusal) => ErrorKind::Held(refusal.clone().into()),
                None => ErrorKind::Unavailable,
            },
            lambda_lock::ErrorKind::Lost => ErrorKind::Lost,
            lambda_lock::ErrorKind::Unavailable => ErrorKind::Unavailable,
            lambda_lock::ErrorKind::OutOfTime => {
                let [needed, remaining] =
                    [error.needed(), error.remaining()].map(Option::unwrap_or_default).map(millis);
                ErrorKind::OutOfTime(Shortfall { needed, remaining })
            }
            lambda_lock::ErrorKind::InvalidRequest => ErrorKind::InvalidRequest,
            lambda_lock::ErrorKind::InvalidRecord => ErrorKind::InvalidRecord,
            lambda_lock::ErrorKind::Table => ErrorKind::Table,
            lambda_lock::ErrorKind::Denied => ErrorKind::Denied,
            // `Unknown`, and kinds that no function here can return. component/conformance/tests/error_kinds.rs lists
            // them.
            _ => ErrorKind::Unknown,
        };
        let cause = std::error::Error::source(&error).map(|source| DisplayErrorContext(source).to_string());
        Self { kind, message: error.to_string(), cause }
    }
}

impl From<Error> for SeveralError {
    fn from(error: Error) -> Self {
        let blocked = error.refusals().iter().map(Into::into).collect();
        Self { error: error.into(), blocked }
    }
}

impl From<&Refusal> for locks::Blocked {
    fn from(refusal: &Refusal) -> Self {
        Self { key: (&refusal.key).into(), held: refusal.clone().into() }
    }
}

impl From<Refusal> for types::Held {
    fn from(refusal: Refusal) -> Self {
        Self {
            holder: refusal.holder,
            lease_ends_at: refusal.lease_ends_at.map(epoch_millis),
            retry_after: millis(refusal.retry_after),
            waiting: refusal.waiting,
            freeze_reason: refusal.freeze_reason,
            observation: refusal.observation.into(),
        }
    }
}

/// An invalid call that was found before any request was sent.
pub(crate) fn invalid(message: &str) -> types::Error {
    types::Error { kind: ErrorKind::InvalidRequest, message: message.to_owned(), cause: None }
}

/// The error of locks that this guard does not hold any more.
pub(crate) fn lost(saved: &[SavedLock]) -> types::Error {
    let keys: Vec<_> = saved.iter().map(|saved| saved.key().to_string()).collect();
    let (locks, were) = if keys.len() == 1 { ("lock", "was") } else { ("locks", "were") };
    let message =
        format!("the {locks} {} {were} given back or handed over here: stop, and do not write", keys.join(", "));
    types::Error { kind: ErrorKind::Lost, message, cause: None }
}
