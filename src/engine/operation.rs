//! The one way to run an operation: its span, its port, and what its error and its report need at its end.

use super::Engine;
use super::deadline::{Deadline, LeasePolicy};
use super::error::{BoxError, Error};
use super::port::EnginePort;
use super::report::Report;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{Failure, LockKey, Operation};
use tracing::Span;

/// Makes the span of an operation. At its end the operation fills in the fields that have no value yet.
macro_rules! operation_span {
    ($name:literal, $($fields:tt)+) => {
        tracing::info_span!(
            $name, $($fields)+, attempts = tracing::field::Empty, waited_ms = tracing::field::Empty,
            outcome = tracing::field::Empty
        )
    };
}
pub(crate) use operation_span;

/// An operation that has ended.
pub(crate) struct Ended<R> {
    pub(crate) result: R,
    /// The last error that the SDK returned.
    pub(crate) cause: Option<BoxError>,
    pub(crate) report: Report,
}

/// What an operation is called in its report, what it is, and on which lock.
pub(crate) type Subject<'a> = (&'a str, Operation, &'a LockKey);

impl Engine {
    /// Runs an operation within its time.
    pub(crate) async fn run<R>(
        &self,
        deadline: &Deadline,
        span: &Span,
        operation: impl AsyncFnOnce(&mut EnginePort<'_>) -> R,
    ) -> Ended<R> {
        self.run_with_writes(deadline, span, &[], operation).await
    }

    /// Runs an operation whose requests are transactions with these writes of the caller's.
    pub(crate) async fn run_with_writes<R>(
        &self,
        deadline: &Deadline,
        span: &Span,
        writes: &[TransactWriteItem],
        operation: impl AsyncFnOnce(&mut EnginePort<'_>) -> R,
    ) -> Ended<R> {
        let mut port = EnginePort::new(self, deadline, span, writes);
        let result = operation(&mut port).await;
        let (cause, report) = port.end();
        Ended { result, cause, report }
    }

    /// Runs an operation that grants nothing and waits for no other holder, and reports it.
    pub(crate) async fn run_alone<T, O: AsRef<str>>(
        &self,
        span: &Span,
        subject: Subject<'_>,
        operation: impl AsyncFnOnce(&mut EnginePort<'_>) -> Result<T, Failure>,
        outcome: impl FnOnce(&T) -> O,
    ) -> Result<T, Error> {
        let deadline = self.deadline(LeasePolicy::None, None);
        self.run(&deadline, span, operation).await.reported(subject, outcome)
    }
}

impl<T> Ended<Result<T, Failure>> {
    /// Reports an operation that grants nothing: what its result is called, or how it failed.
    pub(crate) fn reported<O: AsRef<str>>(
        self,
        (name, operation, key): Subject<'_>,
        outcome: impl FnOnce(&T) -> O,
    ) -> Result<T, Error> {
        let Self { result, cause, report } = self;
        let result = result.map_err(|failure| Error::of_failure(failure, operation, &[key], cause));
        match &result {
            Ok(done) => report.ended(name, key, outcome(done).as_ref()),
            Err(error) => report.failed(name, key, error),
        }
        result
    }
}
