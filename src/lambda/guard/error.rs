//! The error of a guarded handler: that of the lock, or its own.

use crate::engine::error::Error;
use crate::lambda::diagnostic::named;
use lambda_runtime::Diagnostic;
use std::any::Any;
use std::fmt;

/// Why a guarded handler failed.
#[derive(Debug)]
pub enum LockServiceError<E> {
    /// The lock failed. With [`CutShort`](crate::ErrorKind::CutShort) and [`Lost`](crate::ErrorKind::Lost) the handler
    /// ran: its lease ended while it ran, or the lock was lost meanwhile. With any other kind the lock was not acquired,
    /// and the handler did not run.
    Lock(Error),
    /// The handler ran and failed. The lock was released. If it was not, a warning in the log shows why, and the lease
    /// frees the lock.
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
            // The error itself, so that a caller that looks for a lock's error in a box finds it.
            LockServiceError::Lock(error) => Some(error),
            LockServiceError::Handler(error) => error.source(),
        }
    }
}

/// Names a lock's error by its [name](crate::lambda::error_type), and leaves the handler's own error as it is. A
/// handler whose errors are boxed ([`lambda_runtime::Error`]) may have a lock's error in the box. That error is found
/// and named, as [`diagnostic`](crate::lambda::diagnostic) does it.
impl<E: Into<Diagnostic> + 'static> From<LockServiceError<E>> for Diagnostic {
    fn from(error: LockServiceError<E>) -> Self {
        match error {
            LockServiceError::Lock(error) => error.into(),
            LockServiceError::Handler(error) => {
                let boxed = (&error as &dyn Any).downcast_ref::<lambda_runtime::Error>();
                boxed.and_then(|error| named(&**error)).unwrap_or_else(|| error.into())
            }
        }
    }
}
