//! Why an operation failed: one list for all operations, and the text of each failure.

use super::key::LockKey;
use super::port::{FailedWrite, Rejection};
use super::record::InvalidRecord;

/// Why an operation failed. Each operation returns only those that can happen to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another grant has the lock, or it was released. Nothing was applied.
    Lost,
    /// The row is not a lock record. It was not changed. Where this call had already written its grant, it released
    /// the row again.
    InvalidRecord(InvalidRecord),
    /// DynamoDB refused the caller's own writes, so nothing of the transaction was applied. The lock is still held.
    Cancelled(Vec<FailedWrite>),
    /// DynamoDB rejected the request. Nothing was applied.
    Rejected(Rejection),
    /// DynamoDB throttled the requests. Nothing was applied.
    Throttled,
    /// A request had no response. It may have been applied, or may still be.
    OutcomeUnknown,
}

impl From<InvalidRecord> for Failure {
    fn from(invalid: InvalidRecord) -> Self {
        Failure::InvalidRecord(invalid)
    }
}

/// The operation that failed, for the text of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Acquire, try to acquire, or reclaim.
    Acquire,
    /// Renew or resume.
    Renew,
    Release,
    /// Peek.
    Read,
    /// A transaction with the caller's writes.
    Commit,
    /// The end of an idempotent work.
    Settle,
}

impl Operation {
    fn done(self) -> &'static str {
        match self {
            Operation::Acquire => "acquired",
            Operation::Renew => "renewed",
            Operation::Release => "released",
            Operation::Read => "read",
            Operation::Commit => "committed",
            Operation::Settle => "settled",
        }
    }

    fn is_transaction(self) -> bool {
        matches!(self, Operation::Commit | Operation::Settle)
    }
}

impl Failure {
    /// The text of the failure: what happened to the lock, and what the caller should do.
    pub fn text(&self, operation: Operation, key: &LockKey) -> String {
        match self {
            Failure::Lost => format!("the lock {key} is no longer ours: stop, and do not write"),
            Failure::InvalidRecord(invalid) => invalid.to_string(),
            Failure::Cancelled(failed) => format!(
                "the transaction under the lock {key} was cancelled and nothing was applied: {}; check these writes; the lock \
                 was still ours",
                reasons(failed)
            ),
            Failure::Rejected(Rejection::Table(message)) if operation.is_transaction() => format!(
                "a table of the transaction under the lock {key} cannot be used: {message}; check the names, Regions \
                 and key schemas of the lock table and of your own tables"
            ),
            Failure::Rejected(rejection) => rejection.text(Some(key)),
            Failure::Throttled if operation.is_transaction() => format!(
                "the transaction under the lock {key} was not applied: DynamoDB throttled it, or it conflicted with \
                 other transactions; retry later"
            ),
            Failure::Throttled => format!(
                "the lock {key} was not {}: DynamoDB throttled or refused the requests for now; retry later",
                operation.done()
            ),
            Failure::OutcomeUnknown if operation == Operation::Commit => format!(
                "outcome unknown: DynamoDB gave no usable response in time, so the transaction under the lock {key} may \
                 or may not have been applied; call settle_commit, or look at what it would have written"
            ),
            Failure::OutcomeUnknown if operation == Operation::Read => {
                format!("the lock {key} was not read: DynamoDB gave no usable response in time; retry the call")
            }
            Failure::OutcomeUnknown => format!(
                "outcome unknown: DynamoDB gave no usable response in time, so the lock {key} may or may not have been \
                 {}; retry the call",
                operation.done()
            ),
        }
    }
}

impl Rejection {
    /// The text of the rejection: what DynamoDB reported, and what to do about it.
    pub fn text(&self, key: Option<&LockKey>) -> String {
        let on = key.map_or(String::new(), |key| format!(" for the lock {key}"));
        match self {
            Rejection::Invalid(message) => format!(
                "DynamoDB rejected the request{on} as invalid: {message}; check the data of the call, and the row"
            ),
            Rejection::Table(message) => {
                format!("the lock table cannot be used{on}: {message}; check its name, Region and key schema")
            }
            Rejection::Denied(message) => format!(
                "access is denied{on}: {message}; check the credentials, the Region, and the role's actions on the table"
            ),
        }
    }
}

fn reasons(failed: &[FailedWrite]) -> String {
    let reason = |FailedWrite { index, code, message }: &FailedWrite| match message {
        Some(message) => format!("write {index}: {code} ({message})"),
        None => format!("write {index}: {code}"),
    };
    failed.iter().map(reason).collect::<Vec<_>>().join(", ")
}
