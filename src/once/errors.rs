//! The errors that only idempotent work has.

use crate::engine::error::{Detail, Error, ErrorKind, StoredFailure};
use lambda_lock_protocol::{Invalid, LockKey, Named, schema};

pub(super) fn payload_mismatch(key: &LockKey) -> Error {
    let key = Named(key);
    let message = format!(
        "the work {key} was first requested with a different payload: give this work another key, or send the \
         payload that belongs to this key"
    );
    Error::new(ErrorKind::PayloadMismatch, message)
}

pub(crate) fn failed_before(key: &LockKey, failure: String) -> Error {
    let key = Named(key);
    let message = format!("the work {key} failed permanently in an earlier attempt: do not retry it under this key");
    Error::new(ErrorKind::FailedBefore, message).with(Detail::Failure(StoredFailure(failure)))
}

/// Of work that was done. Its result cannot be stored, so this failure was stored.
pub(super) fn result_not_stored(key: &LockKey, invalid: &Invalid, failure: String) -> Error {
    let key = Named(key);
    let message = format!(
        "the work {key} was done, but {invalid}; it is not done again under this key before an operator resets it"
    );
    Error::new(ErrorKind::FailedBefore, message).with(Detail::Failure(StoredFailure(failure)))
}

pub(super) fn unreadable_result(key: &LockKey, error: serde_json::Error) -> Error {
    let key = Named(key);
    let message = format!(
        "the stored result of the work {key} cannot be read as the type that the caller expects ({error}): read it \
         with the type that it was stored with, or wait until the record's time is over"
    );
    Error::new(ErrorKind::InvalidRecord, message).with(Detail::Attribute(schema::OUTCOME.to_owned()))
}

pub(super) fn work_cut_short(key: &LockKey) -> Error {
    let key = Named(key);
    let message = format!(
        "the lease of the idempotent work {key} ended while it ran, so the work was stopped; the next call \
         takes over; give the work more time or checkpoints"
    );
    Error::new(ErrorKind::CutShort, message)
}
