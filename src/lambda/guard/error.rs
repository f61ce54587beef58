//! What a guarded handler fails with: the lock's error, or its own.

use crate::error::Error;
use lambda_runtime::Diagnostic;
use std::fmt;

/// Why a guarded handler did not answer.
#[derive(Debug)]
pub enum LockServiceError<E> {
    /// The lock was not acquired, and the handler did not run.
    Lock(Error),
    /// The handler ran and failed; the lock was given back.
    Handler(E),
}

impl<E: fmt::Display> fmt::Display for LockServiceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockServiceError::Lock(error) => error.fmt(f),
            LockServiceError::Handler(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for LockServiceError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LockServiceError::Lock(error) => error.source(),
            LockServiceError::Handler(error) => error.source(),
        }
    }
}

/// The lock's error by its [name](crate::lambda::error_type), the handler's own as it is.
impl<E: Into<Diagnostic>> From<LockServiceError<E>> for Diagnostic {
    fn from(error: LockServiceError<E>) -> Self {
        match error {
            LockServiceError::Lock(error) => error.into(),
            LockServiceError::Handler(error) => error.into(),
        }
    }
}
