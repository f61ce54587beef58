//! Reset: allows idempotent work again that failed for good, for operators.

use super::request::Once;
use super::status::OnceStatus;
use crate::client::Operator;
use crate::engine::error::Error;
use crate::engine::operation::operation_span;
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{self as protocol, Item, LockKey, OnceRecord, Operation, WorkReset};

/// The result of a [reset](Operator::reset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetOutcome {
    /// The next attempt may begin.
    Open,
    /// The record does not say that the work failed for good: it is open, or done, or nobody requested it, or it changed
    /// meanwhile. Nothing was changed.
    NotFailed,
}

impl Operator<'_> {
    /// Allows [idempotent work](crate::LockClient::once) again after it failed for good, because an operator decides so. `reason` stays
    /// in the row, and [`OnceStatus::reset_reason`](super::OnceStatus::reset_reason) shows it.
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
    pub async fn reset(self, name: impl Into<LockKey>, reason: &str) -> Result<ResetOutcome, Error> {
        self.locks.once(name).reset_if(None, reason).await
    }

    /// Allows this work again as [`reset`](Operator::reset) does, if its record is still the one that
    /// [`status`](super::Once::status) returned. Otherwise it is left alone, and the outcome is `NotFailed`.
    ///
    /// # Errors
    /// Those of [`reset`](Operator::reset).
    pub async fn reset_seen(
        self,
        name: impl Into<LockKey>,
        seen: &OnceStatus,
        reason: &str,
    ) -> Result<ResetOutcome, Error> {
        self.locks.once(name).reset_if(Some(seen), reason).await
    }
}

impl Once<'_> {
    async fn reset_if(self, seen: Option<&OnceStatus>, reason: &str) -> Result<ResetOutcome, Error> {
        self.check_name()?;
        let Self { engine, name, row, .. } = self;
        engine.settings.check_key(&row)?;
        engine.settings.check_reason(reason)?;
        let span = operation_span!("once_reset", key = %name);
        let status = |row: &Item| OnceRecord::read(row.clone(), &engine.settings.schema).map(OnceStatus::from);
        let is_as_seen = |row: &Item| seen.is_none_or(|seen| status(row).is_ok_and(|status| status == *seen));
        let call = async |port: &mut EnginePort<'_>| protocol::reset(port, &row, reason, is_as_seen).await;
        let reset = engine.run_alone(&span, ("reset", Operation::Reset, &name), call, |reset| format!("{reset:?}"));
        Ok(match reset.await? {
            WorkReset::Open => ResetOutcome::Open,
            WorkReset::NotFailed => ResetOutcome::NotFailed,
        })
    }
}
