//! Reset: allows idempotent work again that failed for good, for operators.

use super::request::Once;
use crate::engine::call::Call;
use crate::engine::deadline::LeasePolicy;
use crate::engine::error::Error;
use lambda_lock_protocol::{self as protocol, Operation, WorkReset};
use tracing::field::Empty;

/// The result of a [reset](Once::reset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetOutcome {
    /// The next attempt may begin.
    Open,
    /// The record does not say that the work failed for good: it is open, or done, or nobody requested it, or it changed
    /// meanwhile. Nothing was changed.
    NotFailed,
}

impl Once<'_> {
    /// Allows this work again after it failed for good, because an operator decides so. `reason` stays in the row, and
    /// [`OnceStatus::reset_reason`](super::OnceStatus::reset_reason) shows it.
    ///
    /// First make sure that the failed attempt left nothing behind: the next call does the work again. The attempts and the
    /// payload stay, and so does the time until which the record counts. The fencing token of the next attempt is larger.
    ///
    /// # Errors
    /// Returns [`Unknown`](crate::ErrorKind::Unknown) when no response came, or when the record has changed after a request without a
    /// response: the work may be allowed again, and the next attempt may have begun. So look at its
    /// [status](Once::status). Returns `Unavailable`, `InvalidRequest`, `Table` or `Denied`. A reason has 1 to 2,048 bytes.
    ///
    /// # Requests and IAM actions
    /// It sends one consistent read (`dynamodb:GetItem`), then one write if the work failed for good (`dynamodb:UpdateItem`), and
    /// that again when a response was lost.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work may or may not be allowed again. It is safe to repeat.
    pub async fn reset(self, reason: &str) -> Result<ResetOutcome, Error> {
        self.check_name()?;
        let Self { engine, name, row, .. } = self;
        engine.settings().check_key(&row)?;
        engine.settings().check_reason(reason)?;
        let deadline = engine.deadline(LeasePolicy::None, None);
        let span = tracing::info_span!("once_reset", key = %name, attempts = Empty, waited_ms = Empty, outcome = Empty);
        let mut call = Call::new(engine, &deadline, &span);
        let reset = protocol::reset(&mut call, &row, reason).await;
        let reset = call.ended("reset", (Operation::Reset, &name), reset, |reset| format!("{reset:?}"));
        Ok(match reset? {
            WorkReset::Open => ResetOutcome::Open,
            WorkReset::NotFailed => ResetOutcome::NotFailed,
        })
    }
}
