//! One error, whose kind says what the caller does next.

#[cfg(feature = "once")]
use crate::protocol::schema;
use crate::protocol::{
    FailedWrite, Failure, HolderSeen, Invalid, LockKey, Observation, Operation, Rejection, from_epoch_millis, quoted,
};
use std::fmt;
use std::time::{Duration, SystemTime};

/// Why an operation did not do what was asked.
///
/// [`kind`](Error::kind) says what to do; the text says the same in one sentence, with names and
/// figures, and quotes the reason that DynamoDB gave; [`source`](std::error::Error::source) is the SDK's whole error,
/// where there is one. The text does not repeat the text of the source.
///
/// What belongs to one kind has a method of its own:
///
/// | kind | methods |
/// |---|---|
/// | [`Held`](ErrorKind::Held) | [`held`](Error::held) |
/// | [`Cancelled`](ErrorKind::Cancelled) | [`failed_writes`](Error::failed_writes) |
/// | [`FailedBefore`](ErrorKind::FailedBefore) | [`failure`](Error::failure) |
/// | [`OutOfTime`](ErrorKind::OutOfTime) | [`needed`](Error::needed), [`remaining`](Error::remaining) |
/// | [`InvalidRecord`](ErrorKind::InvalidRecord) | [`invalid_attribute`](Error::invalid_attribute) |
///
/// ```no_run
/// # async fn example(locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget) -> Result<(), lambda_lock::Error> {
/// use lambda_lock::ErrorKind;
///
/// match locks.acquire("customer-7").within(budget).await {
///     Ok(lock) => { /* … the work … */ lock.release().await?; }
///     Err(error) if error.is_held() => println!("held by {:?}", error.held().map(|held| &held.holder)),
///     Err(error) => match error.kind() {
///         ErrorKind::Unknown | ErrorKind::Unavailable => println!("retry: {error}"),
///         _ => return Err(error),
///     },
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    detail: Detail,
    source: Option<BoxError>,
}

/// What belongs to one kind of error.
#[derive(Debug)]
enum Detail {
    None,
    Held(Held),
    FailedWrites(Vec<FailedWrite>),
    #[cfg(feature = "once")]
    Failure(String),
    Time {
        needed: Duration,
        remaining: Duration,
    },
    Attribute(String),
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What an error means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Retry later. Somebody else holds the lock, and held it for all the time that could be waited.
    /// Nothing of this call is left behind. [`Error::held`] says who holds it.
    Held,
    /// Stop, and do not write. Another grant has the lock, or it was released.
    Lost,
    /// Ask again with the same call; each of them is safe to repeat, but for a commit. Nobody knows whether
    /// the request was applied: no answer came in time, or a broken one.
    ///
    /// After a commit ask [`settle_commit`](crate::Lock::settle_commit) first: to send its writes again could
    /// apply them twice.
    ///
    /// After an acquire the lock may be taken for at most its lease, although this call tried to give
    /// it back. After a renewal the guard goes on believing what it believed before. After a release
    /// the lock is free at the latest when its lease ends.
    Unknown,
    /// Look at what the work left. Its lease ended while it ran, so it was dropped where it stood: somebody else
    /// may be granted the lock from then on.
    CutShort,
    /// Look at your own writes. One of them was refused, so the transaction was cancelled and nothing of
    /// it was applied. Whether the lock is still ours the next checkpoint tells. [`Error::failed_writes`]
    /// lists the writes that were refused. The reasons as the SDK gives them, with the items where your writes asked
    /// for them, are in the error's [`source`](std::error::Error::source).
    Cancelled,
    /// Give the work another key, or the payload that belongs to this one. The record of this
    /// idempotent work was made for a different payload.
    PayloadMismatch,
    /// Do not try again under this key. An earlier attempt at this idempotent work failed for good, and
    /// its failure was stored: [`Error::failure`] returns it.
    FailedBefore,
    /// Ask again later. DynamoDB refused for now (throttled, or a transaction had the row) for as long
    /// as could be waited; nothing was applied.
    Unavailable,
    /// Renew first, or leave the step to the next invocation. The lease or the budget does not cover
    /// what was asked; no request was sent. See [`Error::needed`] and [`Error::remaining`].
    OutOfTime,
    /// Fix the call. No request was sent, or DynamoDB found it invalid.
    InvalidRequest,
    /// Look at the row. It is not a lock record. It was left as it is; where that showed only after the call had
    /// written to it, it was released again. [`Error::invalid_attribute`] says which attribute is wrong.
    InvalidRecord,
    /// Fix the deployment. The table is missing, is not ready, or has another key schema.
    Table,
    /// Fix the deployment. Credentials are missing or expired, or the role lacks an action on the table.
    Denied,
}

/// Somebody else's hold on a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Who holds it.
    pub holder: String,
    /// When its lease ends by the holder's own wall clock; `None` for holders of other clients,
    /// which do not write it.
    pub lease_ends_at: Option<SystemTime>,
    /// How long until the holder could be proven dead if it neither renews nor releases. It may
    /// well release earlier.
    pub retry_after: Duration,
    /// What was seen. Carry it to the next call with
    /// [`observation`](crate::Acquire::observation), so that calls that live for seconds can
    /// together watch a lease that lasts for minutes.
    pub observation: Observation,
}

impl From<HolderSeen> for Held {
    fn from(seen: HolderSeen) -> Self {
        Self {
            holder: seen.owner,
            lease_ends_at: seen.ends_at_ms.and_then(from_epoch_millis),
            retry_after: seen.retry_after,
            observation: seen.observation,
        }
    }
}

impl Error {
    /// What the error means to the caller.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Who holds the lock, where that is the reason.
    pub fn held(&self) -> Option<&Held> {
        match &self.0.detail {
            Detail::Held(held) => Some(held),
            _ => None,
        }
    }

    /// The caller's own writes that were refused, so that the transaction was [cancelled](ErrorKind::Cancelled).
    /// Empty with every other kind.
    pub fn failed_writes(&self) -> &[FailedWrite] {
        match &self.0.detail {
            Detail::FailedWrites(failed) => failed,
            _ => &[],
        }
    }

    /// The failure that an earlier attempt at the idempotent work stored, as JSON.
    pub fn failure(&self) -> Option<&str> {
        match &self.0.detail {
            #[cfg(feature = "once")]
            Detail::Failure(failure) => Some(failure),
            _ => None,
        }
    }

    /// How much time was asked for, where less is left.
    pub fn needed(&self) -> Option<Duration> {
        match self.0.detail {
            Detail::Time { needed, .. } => Some(needed),
            _ => None,
        }
    }

    /// How much time is left, where more was asked for.
    pub fn remaining(&self) -> Option<Duration> {
        match self.0.detail {
            Detail::Time { remaining, .. } => Some(remaining),
            _ => None,
        }
    }

    /// The attribute of the row that is missing or makes no sense.
    pub fn invalid_attribute(&self) -> Option<&str> {
        match &self.0.detail {
            Detail::Attribute(name) => Some(name),
            _ => None,
        }
    }

    /// Whether somebody else holds the lock.
    pub fn is_held(&self) -> bool {
        self.kind() == ErrorKind::Held
    }

    /// Whether the lock is no longer ours.
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// Whether the outcome is unknown.
    pub fn is_unknown(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }

    /// Whether the work was stopped because its lease ended.
    pub fn is_cut_short(&self) -> bool {
        self.kind() == ErrorKind::CutShort
    }

    /// Whether one of the caller's own writes was refused, so that nothing was applied.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Whether the idempotent work was first asked for with a different payload.
    pub fn is_payload_mismatch(&self) -> bool {
        self.kind() == ErrorKind::PayloadMismatch
    }

    /// Whether an earlier attempt at the idempotent work failed for good.
    pub fn is_failed_before(&self) -> bool {
        self.kind() == ErrorKind::FailedBefore
    }

    /// Whether DynamoDB refused for now, and nothing was applied.
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// Whether the lease or the budget does not cover what was asked.
    pub fn is_out_of_time(&self) -> bool {
        self.kind() == ErrorKind::OutOfTime
    }

    /// Whether the call has to be fixed.
    pub fn is_invalid_request(&self) -> bool {
        self.kind() == ErrorKind::InvalidRequest
    }

    /// Whether the row is not a lock record.
    pub fn is_invalid_record(&self) -> bool {
        self.kind() == ErrorKind::InvalidRecord
    }

    /// Whether the table is missing, is not ready, or has another key schema.
    pub fn is_table(&self) -> bool {
        self.kind() == ErrorKind::Table
    }

    /// Whether credentials or permissions are missing.
    pub fn is_denied(&self) -> bool {
        self.kind() == ErrorKind::Denied
    }

    fn new(kind: ErrorKind, message: String) -> Self {
        Self(Box::new(Inner { kind, message, detail: Detail::None, source: None }))
    }

    fn with(mut self, detail: Detail) -> Self {
        self.0.detail = detail;
        self
    }

    pub(crate) fn because(mut self, source: Option<BoxError>) -> Self {
        self.0.source = source;
        self
    }

    pub(crate) fn from_held(key: &LockKey, held: Held) -> Self {
        let message = format!(
            "the lock {key} is held by {}: try again in {:?} at the latest",
            quoted(&held.holder),
            held.retry_after
        );
        Self::new(ErrorKind::Held, message).with(Detail::Held(held))
    }

    /// What a failure of an operation on this lock means to its caller. `cause` is what the SDK returned.
    pub(crate) fn of_failure(
        failure: Failure,
        operation: Operation,
        key: &LockKey,
        cause: impl Into<Option<BoxError>>,
    ) -> Self {
        let message = failure.text(operation, key);
        let (kind, detail, explained) = match failure {
            Failure::Lost => (ErrorKind::Lost, Detail::None, false),
            Failure::InvalidRecord(invalid) => {
                (ErrorKind::InvalidRecord, Detail::Attribute(invalid.attribute().to_owned()), false)
            }
            Failure::Cancelled(failed) => (ErrorKind::Cancelled, Detail::FailedWrites(failed), true),
            Failure::Rejected(rejection) => (kind_of(&rejection), Detail::None, true),
            Failure::Throttled => (ErrorKind::Unavailable, Detail::None, true),
            Failure::OutcomeUnknown => (ErrorKind::Unknown, Detail::None, true),
        };
        Self::new(kind, message).with(detail).because(cause.into().filter(|_| explained))
    }

    pub(crate) fn lost(key: &LockKey) -> Self {
        Self::of_failure(Failure::Lost, Operation::Renew, key, None)
    }

    #[cfg(feature = "once")]
    pub(crate) fn payload_mismatch(key: &LockKey) -> Self {
        let message = format!(
            "the work {key} was first asked for with a different payload: give it a key of its own, or the payload \
             that belongs to this key"
        );
        Self::new(ErrorKind::PayloadMismatch, message)
    }

    #[cfg(feature = "once")]
    pub(crate) fn failed_before(key: &LockKey, failure: String) -> Self {
        let message = format!("the work {key} failed for good in an earlier attempt: it is not tried again");
        Self::new(ErrorKind::FailedBefore, message).with(Detail::Failure(failure))
    }

    #[cfg(feature = "once")]
    pub(crate) fn unreadable_result(key: &LockKey, error: serde_json::Error) -> Self {
        let message = format!(
            "the stored result of the work {key} cannot be read as what the caller expects ({error}): read it with the \
             type that it was stored with, or wait until the record is over"
        );
        Self::new(ErrorKind::InvalidRecord, message).with(Detail::Attribute(schema::OUTCOME.to_owned()))
    }

    pub(crate) fn lost_by_work(key: &LockKey) -> Self {
        let message = format!(
            "the lock {key} was lost before its work ended: the work ended well, but somebody else may have worked \
             at the same time; look at what it wrote"
        );
        Self::new(ErrorKind::Lost, message)
    }

    pub(crate) fn cut_short(key: &LockKey, released: bool) -> Self {
        let now = if released { "the lock was released" } else { "the lock was not released; its lease is over" };
        let message = format!(
            "the lease of the lock {key} ended while its work ran: the work was stopped where it stood; {now}; look \
             at what the work left, and give it more time or checkpoints"
        );
        Self::new(ErrorKind::CutShort, message)
    }

    #[cfg(feature = "once")]
    pub(crate) fn work_cut_short(key: &LockKey) -> Self {
        let message = format!(
            "the lease of the idempotent work {key} ended while it ran: the work was stopped where it stood, and the \
             next call takes over; give it more time or checkpoints"
        );
        Self::new(ErrorKind::CutShort, message)
    }

    pub(crate) fn released_without_data(key: &LockKey, invalid: &Invalid) -> Self {
        Self::new(ErrorKind::InvalidRequest, format!("the lock {key} was released, but without its data: {invalid}"))
    }

    pub(crate) fn unbuildable(error: &BoxError) -> Self {
        Self::new(ErrorKind::InvalidRequest, format!("the condition check cannot be built: {error}"))
    }

    pub(crate) fn out_of_time(key: &LockKey, what: &str, needed: Duration, remaining: Duration) -> Self {
        let message = format!("the {what} of the lock {key} has {remaining:?} left, and {needed:?} are needed");
        Self::new(ErrorKind::OutOfTime, message).with(Detail::Time { needed, remaining })
    }

    pub(crate) fn table_unknown(table: &str, what: &str) -> Self {
        let message = format!("nobody knows whether the table {table:?} was {what}: no usable answer came; ask again");
        Self::new(ErrorKind::Unknown, message)
    }

    pub(crate) fn table_unavailable(table: &str, what: &str) -> Self {
        let message = format!("the table {table:?} was not {what}: DynamoDB refuses requests for now; ask again later");
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn table(message: String) -> Self {
        Self::new(ErrorKind::Table, message)
    }

    /// A request about the table that DynamoDB will not take.
    pub(crate) fn table_rejected(rejection: &Rejection) -> Self {
        Self::new(kind_of(rejection), rejection.text(None))
    }
}

fn kind_of(rejection: &Rejection) -> ErrorKind {
    match rejection {
        Rejection::Invalid(_) => ErrorKind::InvalidRequest,
        Rejection::Table(_) => ErrorKind::Table,
        Rejection::Denied(_) => ErrorKind::Denied,
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::new(ErrorKind::InvalidRequest, invalid.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
