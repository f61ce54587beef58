//! Why an operation failed: one list for all operations, and the text of each failure.

use super::key::LockKey;
use super::record::{InvalidRecord, quoted};
use super::reply::{FailedWrite, Rejection};
use std::fmt;

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
    /// A release that an operator decides.
    Break,
    /// A lock that an operator freezes.
    Freeze,
    /// A lock that an operator thaws.
    Thaw,
    /// Idempotent work that an operator allows again.
    Reset,
    /// Peek.
    Read,
    /// A transaction with the caller's writes.
    Commit,
    /// A transaction with the caller's writes that ends the grant.
    CommitAndRelease,
    /// The end of an idempotent work.
    Settle,
}

impl Operation {
    fn done(self) -> &'static str {
        match self {
            Operation::Acquire => "acquired",
            Operation::Renew => "renewed",
            Operation::Release => "released",
            Operation::Break => "broken",
            Operation::Freeze => "frozen",
            Operation::Thaw => "thawed",
            Operation::Reset => "reset",
            Operation::Read => "read",
            Operation::Commit | Operation::CommitAndRelease => "committed",
            Operation::Settle => "settled",
        }
    }

    fn is_transaction(self) -> bool {
        matches!(self, Operation::Commit | Operation::CommitAndRelease | Operation::Settle)
    }
}

impl Failure {
    /// The text of the failure: what happened to these locks, and what the caller should do.
    pub fn text(&self, operation: Operation, locks: &[&LockKey]) -> String {
        let locks = Locks(locks);
        let (is, was) = if locks.0.len() > 1 { ("are", "were") } else { ("is", "was") };
        match self {
            Failure::Lost => format!("{locks} {is} no longer ours: stop, and do not write"),
            Failure::InvalidRecord(invalid) => invalid.to_string(),
            Failure::Cancelled(failed) => format!(
                "the transaction under {locks} was cancelled and nothing was applied: {}; check these writes; {locks} {was} \
                 still ours",
                reasons(failed)
            ),
            Failure::Rejected(Rejection::Table(message)) if operation.is_transaction() => format!(
                "a table of the transaction under {locks} cannot be used: {message}; check the names, Regions \
                 and key schemas of the lock table and of your own tables"
            ),
            Failure::Rejected(rejection) => rejection.text(locks.0),
            Failure::Throttled if operation.is_transaction() => format!(
                "the transaction under {locks} was not applied: DynamoDB throttled it, or it conflicted with \
                 other transactions; retry later"
            ),
            Failure::Throttled => format!(
                "{locks} {was} not {}: DynamoDB throttled or refused the requests for now; retry later",
                operation.done()
            ),
            Failure::OutcomeUnknown if operation == Operation::Commit => format!(
                "outcome unknown: DynamoDB gave no usable response in time, so the transaction under {locks} may \
                 or may not have been applied; call resolve_commit, or look at what it would have written"
            ),
            // No guard is left to call resolve_commit on.
            Failure::OutcomeUnknown if operation == Operation::CommitAndRelease => format!(
                "outcome unknown: DynamoDB gave no usable response in time, so the transaction under {locks} may \
                 or may not have been applied; look at what it would have written"
            ),
            Failure::OutcomeUnknown if operation == Operation::Read => {
                format!("{locks} {was} not read: DynamoDB gave no usable response in time; retry the call")
            }
            Failure::OutcomeUnknown => format!(
                "outcome unknown: DynamoDB gave no usable response in time, so {locks} may or may not have been \
                 {}; retry the call",
                operation.done()
            ),
        }
    }
}

impl Rejection {
    /// The text of the rejection: what DynamoDB reported, and what to do about it.
    pub fn text(&self, locks: &[&LockKey]) -> String {
        let on = if locks.is_empty() { String::new() } else { format!(" for {}", Locks(locks)) };
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

/// Names locks in a sentence: "the lock a", "the locks a, b and c".
pub struct Locks<'a>(pub &'a [&'a LockKey]);

/// A key in a sentence. One that could pass for something else, or fill the sentence, is quoted and cut: a key may come from
/// whoever sent a request.
pub struct Named<'a>(pub &'a LockKey);

/// The longest key that a sentence has as it is, in bytes.
const MAX_NAMED_BYTES: usize = 256;

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| {
            let is_plain = text.len() <= MAX_NAMED_BYTES && format!("{text:?}").len() == text.len() + 2;
            if is_plain { text.to_owned() } else { quoted(text) }
        };
        match self.0.sort_key() {
            None => f.write_str(&shown(self.0.key())),
            Some(sort_key) => write!(f, "({}, {})", shown(self.0.key()), shown(sort_key)),
        }
    }
}

/// How many locks a sentence names.
const MAX_NAMED: usize = 5;

impl fmt::Display for Locks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() > 1 { "the locks " } else { "the lock " })?;
        let named = if self.0.len() > MAX_NAMED { MAX_NAMED } else { self.0.len() };
        for (index, key) in self.0.iter().take(named).enumerate() {
            let key = Named(key);
            match index {
                0 => write!(f, "{key}")?,
                last if last + 1 == self.0.len() => write!(f, " and {key}")?,
                _ => write!(f, ", {key}")?,
            }
        }
        match self.0.len() - named {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
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
