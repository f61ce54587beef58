//! Converts the crate's errors to those of the WIT package.

use crate::bindings::exports::lambda_lock::lock::locks::{self, SeveralError};
use crate::bindings::exports::lambda_lock::lock::types::{self, ErrorKind, Shortfall};
use crate::convert::{epoch_millis, millis};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use lambda_lock::{Blocked, Error, Held, SavedLock};

impl From<Error> for types::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            lambda_lock::ErrorKind::Held => match error.held() {
                Some(held) => ErrorKind::Held(held.clone().into()),
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
        let blocked = error.blocked().iter().map(Into::into).collect();
        Self { error: error.into(), blocked }
    }
}

impl From<&Blocked> for locks::Blocked {
    fn from(blocked: &Blocked) -> Self {
        Self { key: (&blocked.key).into(), held: blocked.held.clone().into() }
    }
}

impl From<Held> for types::Held {
    fn from(held: Held) -> Self {
        Self {
            holder: held.holder,
            lease_ends_at: held.lease_ends_at.map(epoch_millis),
            retry_after: millis(held.retry_after),
            waiting: held.waiting,
            freeze_reason: held.freeze_reason,
            observation: held.observation.into(),
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
