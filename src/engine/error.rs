//! The error type. Its kind tells the caller what to do next.

use super::cause::reasons_of;
use lambda_lock_protocol::schema;
use lambda_lock_protocol::{
    Attribute, FailedWrite, Failure, HolderSeen, Invalid, LockKey, Locks, Named, Observation, Operation, Rejection,
    from_epoch_millis, quoted,
};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Why an operation failed.
///
/// [`kind`](Error::kind) tells what to do. The text tells the same in one sentence, with names and figures, and quotes
/// the reason that DynamoDB gave, such as the limit of the table or index for which it throttled.
/// [`source`](std::error::Error::source) is the error that the SDK returned, if it did. Of
/// an acquire that could not renew or give back what it had, it is the error of that step. Of a response that could not be used,
/// it is the status, and its own source is the error of the SDK. The text does not repeat the text of the source: why there was
/// no response stands in the sources alone, such as `Connection refused`, or `no response within 1s`.
///
/// What belongs to one kind has a method of its own:
///
/// | kind | methods |
/// |---|---|
/// | [`Held`](ErrorKind::Held) | [`refusal`](Error::refusal), [`refusals`](Error::refusals) |
/// | [`Cancelled`](ErrorKind::Cancelled) | [`failed_writes`](Error::failed_writes) |
/// | [`FailedBefore`](ErrorKind::FailedBefore) | [`failure`](Error::failure) |
/// | [`OutOfTime`](ErrorKind::OutOfTime) | [`needed`](Error::needed), [`remaining`](Error::remaining) |
/// | [`InvalidRecord`](ErrorKind::InvalidRecord) | [`invalid_attribute`](Error::invalid_attribute) |
/// | [`Unknown`](ErrorKind::Unknown), and others of a call for several locks, or that ended the guard | [`may_be_held`](Error::may_be_held) |
///
/// ```no_run
/// # async fn example(locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget) -> Result<(), lambda_lock::Error> {
/// use lambda_lock::ErrorKind;
///
/// match locks.acquire("customer-7").within(budget).await {
///     Ok(lock) => { /* … the work … */ lock.release().await?; }
///     Err(error) if error.is_held() => println!("held by {:?}", error.refusal().map(|refusal| &refusal.holder)),
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
    /// The locks that may be held for the caller, although the call failed.
    may_be_held: Vec<LockKey>,
    source: Option<BoxError>,
}

/// The failure that an attempt at idempotent work stored, as JSON.
#[cfg(feature = "once")]
pub(crate) struct StoredFailure(pub(crate) String);

/// Leaves out the text, because it is the caller's data and does not belong in logs.
#[cfg(feature = "once")]
impl fmt::Debug for StoredFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredFailure")
    }
}

/// What belongs to one kind of error.
#[derive(Debug)]
pub(crate) enum Detail {
    None,
    Refused {
        refusals: Vec<Refusal>,
        /// The position of the one that decides how long to wait.
        decisive: usize,
    },
    FailedWrites(Vec<FailedWrite>),
    #[cfg(feature = "once")]
    Failure(StoredFailure),
    Time {
        needed: Duration,
        remaining: Duration,
    },
    Attribute(String),
}

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the sources of an error say, from the nearest one on.
#[cfg(feature = "lambda")]
pub(crate) fn causes(error: &dyn std::error::Error) -> Option<String> {
    let said = std::iter::successors(error.source(), |cause| (*cause).source()).map(ToString::to_string);
    said.reduce(|said, cause| if said.ends_with(&cause) { said } else { format!("{said}: {cause}") })
}

/// What an error means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Retry later. Another holder had the lock for all the time that this call could wait, or it was free and left to those in
    /// line. This call holds nothing. It gives up its place in line, if it had one, unless it waits [between its
    /// calls](crate::Acquire::between_calls). [`Error::refusal`] has the holder.
    Held,
    /// Stop, and do not write. Another grant has the lock, or it was released.
    Lost,
    /// Retry the same call. All calls but a commit are safe to repeat. The outcome is unknown: DynamoDB may or may
    /// not have applied the request, because there was no usable response in time.
    ///
    /// After a commit, call [`resolve_commit`](crate::Lock::resolve_commit) first. If its writes are sent again, they
    /// may be applied twice. After [`commit_and_release`](crate::Lock::commit_and_release) no guard is left for that: read what
    /// they would have written.
    ///
    /// After an acquire, the lock may be held for at most its lease, although this call tried to release it. After a
    /// renewal, the guard relies on its lease as long as before. After a release, the lock is free at the latest when
    /// its lease ends.
    Unknown,
    /// Check what the work left behind. Its lease ended while it ran, so it was dropped at that point. Another
    /// contender may be granted the lock from then on.
    CutShort,
    /// Check your own writes. DynamoDB refused one of them, so it cancelled the transaction and applied nothing of
    /// it. The next checkpoint shows whether the lock is still ours. [`Error::failed_writes`] lists the writes that were
    /// refused. The error's [`source`](std::error::Error::source) has the reasons as the SDK returned them, with the items where your
    /// writes asked for them.
    Cancelled,
    /// Give the work another key, or the payload that belongs to this key. The record of this idempotent work was
    /// made for a different payload.
    PayloadMismatch,
    /// Do not retry under this key. An earlier attempt at this idempotent work failed permanently, and stored its
    /// failure, which [`Error::failure`] returns.
    FailedBefore,
    /// Retry later. DynamoDB throttled the requests, or another transaction had the row, for as long as this call
    /// could wait. Nothing was applied.
    Unavailable,
    /// Renew first, or leave the step to the next invocation. The lease or the budget does not cover the time that
    /// was asked for. No request was sent. An acquire [in order](crate::AcquireAll::in_order) holds nothing after it: its lease is
    /// too short for the response times, so give a longer one, or its time was over before it had asked for every lock, so give it
    /// more. See [`Error::needed`] and [`Error::remaining`].
    OutOfTime,
    /// Fix the call. Either no request was sent, or DynamoDB found the request invalid.
    InvalidRequest,
    /// Look at the row. It is not a lock record. It was not changed. If this call had already written its grant when
    /// it noticed, it released the row again. [`Error::invalid_attribute`] is the attribute that is wrong.
    InvalidRecord,
    /// Fix the deployment. The table is missing, is not ready, or has another key schema.
    Table,
    /// Fix the deployment. Credentials are missing or expired, or the role lacks an action on the table.
    Denied,
}

/// Why a lock could not be acquired: who has it, and when to retry.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The lock, with the prefix of the client. Who calls the same client with it takes the prefix off.
    pub key: LockKey,
    /// The owner that holds the lock.
    pub holder: String,
    /// When the lease ends, by the holder's own wall clock. `None` for holders that use other clients, which do not
    /// write it.
    pub lease_ends_at: Option<SystemTime>,
    /// How long until the holder can be proven dead, if it neither renews nor releases. Retry at the latest then. It may release
    /// earlier: who retries sooner learns of it sooner, for one request each time. At least ten seconds where the lock is frozen.
    /// Where the lock is free and left to those in line: when it is anybody's.
    pub retry_after: Duration,
    /// How many callers [wait in line](crate::Acquire::in_turn) for the lock, as far as its row tells, this one too if it keeps
    /// its place. Some of them may be gone. The lock may be free, and is left to them.
    pub waiting: u64,
    /// Nobody holds the lock: it is free, or its holder is provably dead. It is left to those who wait in line, and
    /// [`holder`](Refusal::holder) is who held it last.
    pub left_to_line: bool,
    /// Why an operator has [frozen](crate::operator::Operator::freeze) the lock, if it is frozen. Nobody else is granted it until it is
    /// thawed. Its holder may have released it.
    pub freeze_reason: Option<String>,
    /// What this call observed. Give it to the next call with [`observation`](crate::Acquire::observation), so that
    /// calls that live for seconds can together observe a lease that lasts for minutes. It has no ticket where this call has given
    /// its place in line up.
    pub observation: Observation,
    /// The holder's additional attributes, as [`PeekedLock::attributes`](crate::operator::PeekedLock::attributes) has them.
    pub attributes: BTreeMap<String, Attribute>,
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the attributes, because they are the holder's data and do not belong in logs.
        f.debug_struct("Refusal")
            .field("key", &self.key)
            .field("holder", &self.holder)
            .field("lease_ends_at", &self.lease_ends_at)
            .field("retry_after", &self.retry_after)
            .field("waiting", &self.waiting)
            .field("left_to_line", &self.left_to_line)
            .field("freeze_reason", &self.freeze_reason)
            .field("observation", &self.observation)
            .finish_non_exhaustive()
    }
}

/// By whom a lock is held, and what to do.
fn by_whom(refusal: &Refusal) -> String {
    // The one that reads this is none of them.
    let waiting = refusal.waiting.saturating_sub(u64::from(refusal.observation.ticket().is_some()));
    if refusal.left_to_line {
        return format!(
            "by nobody, and left to the callers that wait in line ({waiting}): retry in at most {:?}",
            refusal.retry_after
        );
    }
    let in_line = match waiting {
        0 => String::new(),
        1 => ", and 1 caller waits in line".to_owned(),
        waiting => format!(", and {waiting} callers wait in line"),
    };
    format!("by {}{in_line}: retry in at most {:?}", quoted(&refusal.holder), refusal.retry_after)
}

/// A time to wait, in whole milliseconds.
pub(crate) fn in_millis(time: Duration) -> Duration {
    let millis = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).map_or(time, Duration::from_millis)
}

/// Why a lock is frozen, and what to do.
pub(crate) fn frozen(reason: &str) -> String {
    format!("frozen by an operator ({}): retry when it is thawed", quoted(reason))
}

impl Refusal {
    pub(crate) fn new(key: LockKey, seen: HolderSeen) -> Self {
        Self {
            key,
            holder: seen.owner,
            lease_ends_at: seen.ends_at_ms.and_then(from_epoch_millis),
            retry_after: in_millis(seen.retry_after),
            waiting: seen.waiting,
            left_to_line: seen.left_to_line,
            freeze_reason: seen.freeze_reason,
            observation: seen.observation,
            attributes: seen.attributes.into_iter().collect(),
        }
    }
}

impl Error {
    /// What the error means to the caller.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Why the lock could not be acquired, if that is why the call failed. Of a call that asked for several, it is the one that
    /// decides how long to wait. [In order](crate::AcquireAll::in_order), it is the one that the call waited for.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.0.detail {
            Detail::Refused { refusals, decisive } => refusals.get(*decisive),
            _ => None,
        }
    }

    /// Why the locks could not be acquired, each of those that others hold. Empty with every other kind than
    /// [`Held`](ErrorKind::Held).
    pub fn refusals(&self) -> &[Refusal] {
        match &self.0.detail {
            Detail::Refused { refusals, .. } => refusals,
            _ => &[],
        }
    }

    /// The locks that may be held for this caller, although the call failed: all of them, where the text names only some. Each is
    /// free at the latest when its lease ends. After an acquire or a release that is `Unknown`, look at them with
    /// [`peek`](crate::operator::Operator::peek), or wait for so long. After a renewal or a commit, the guard holds them as before. Of a
    /// call that ended the guard, they are those that it could not release.
    ///
    /// Empty where the call is known to hold nothing. Of a resume or a reclaim that failed otherwise, the saved locks still stand for
    /// what is held.
    pub fn may_be_held(&self) -> &[LockKey] {
        &self.0.may_be_held
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
            Detail::Failure(StoredFailure(failure)) => Some(failure),
            _ => None,
        }
    }

    /// How much time was asked for, where less is left. Of an acquire [in order](crate::AcquireAll::in_order): how long its renewal,
    /// or the whole call, took.
    pub fn needed(&self) -> Option<Duration> {
        match self.0.detail {
            Detail::Time { needed, .. } => Some(needed),
            _ => None,
        }
    }

    /// How much time is left, where more was asked for. Of an acquire [in order](crate::AcquireAll::in_order): its lease, or the
    /// time that it had for all of its locks.
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

    /// Whether another holder has the lock.
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

    /// Whether one of the caller's own writes was refused, so that nothing was applied.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            detail: Detail::None,
            may_be_held: Vec::new(),
            source: None,
        }))
    }

    pub(crate) fn with(mut self, detail: Detail) -> Self {
        self.0.detail = detail;
        self
    }

    pub(crate) fn because(mut self, source: Option<BoxError>) -> Self {
        if matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::Unknown)
            && let Some(reasons) = source.as_ref().and_then(|source| reasons_of(&**source))
        {
            self.0.message.push_str(&format!(" (DynamoDB's reason: {reasons})"));
        }
        self.0.source = source;
        self
    }

    /// Of a call that needs all of these locks, and was refused after so many looks.
    pub(crate) fn refused(refusals: Vec<Refusal>, looks: u32) -> Self {
        let last = refusals.iter().enumerate().max_by_key(|(_, one)| one.retry_after).map_or(0, |(index, _)| index);
        let keys: Vec<_> = refusals.iter().map(|one| &one.key).collect();
        let mut message = match (&refusals[..], refusals.get(last)) {
            ([only], _) => match &only.freeze_reason {
                None => format!("{} is held {}", Locks(&keys), by_whom(only)),
                Some(reason) => format!("{} is {}", Locks(&keys), frozen(reason)),
            },
            (_, Some(last)) => match &last.freeze_reason {
                None => format!("{} are held, {} {}", Locks(&keys), Named(&last.key), by_whom(last)),
                Some(reason) => format!("{} are held, and {} is {}", Locks(&keys), Named(&last.key), frozen(reason)),
            },
            (_, None) => "the locks are held".to_owned(),
        };
        // In order it would wait for a frozen lock too, and hold others meanwhile.
        if looks > 1 && refusals.iter().all(|one| one.freeze_reason.is_none()) {
            message.push_str(&format!(
                "; {looks} looks in a row found a lock held: see whether acquiring them in_order suits better"
            ));
        }
        Self::new(ErrorKind::Held, message).with(Detail::Refused { refusals, decisive: last })
    }

    /// The error for a failure of an operation on these locks.
    pub(crate) fn of_failure(
        failure: Failure,
        operation: Operation,
        keys: &[&LockKey],
        cause: impl Into<Option<BoxError>>,
    ) -> Self {
        let message = failure.text(operation, keys);
        // The TTL of another client stands in the record of a lock. What else is invalid shows that there is none.
        let is_of_no_lock =
            matches!(&failure, Failure::InvalidRecord(invalid) if invalid.attribute() != schema::TTL_NAME);
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
        let mut error = Self::new(kind, message).with(detail).because(cause.into().filter(|_| explained));
        let holds = match operation {
            Operation::Acquire | Operation::Renew | Operation::Commit | Operation::CommitAndRelease => {
                kind == ErrorKind::Unknown
            }
            // A release that was refused leaves the lock held. Without a lock record there is none.
            Operation::Release => kind != ErrorKind::Lost && !is_of_no_lock,
            _ => false,
        };
        if holds {
            error.0.may_be_held = keys.iter().map(|key| (*key).clone()).collect();
        }
        error
    }

    /// The error of a call that failed for some of its locks. What the caller can repair is worth more than what passes, and of that
    /// an unknown outcome counts first. The other locks that may be held are named too.
    pub(crate) fn of_some_locks(operation: Operation, failed: Vec<(LockKey, Self)>) -> Option<Self> {
        let rank = |error: &Self| match error.kind() {
            ErrorKind::Unavailable => 2,
            ErrorKind::Unknown => 1,
            _ => 0,
        };
        let held: Vec<LockKey> = failed.iter().flat_map(|(_, error)| error.may_be_held().to_vec()).collect();
        let kind = failed.iter().map(|(_, error)| error).min_by_key(|error| rank(error))?.kind();
        let alike = failed.iter().filter(|(_, error)| error.kind() == kind);
        let keys: Vec<LockKey> = alike.map(|(key, _)| key.clone()).collect();
        let (_, error) = failed.into_iter().find(|(_, error)| error.kind() == kind)?;
        let passes = match kind {
            ErrorKind::Unknown => Some(Failure::OutcomeUnknown),
            ErrorKind::Unavailable => Some(Failure::Throttled),
            _ => None,
        };
        let error = match passes {
            // One for all of them.
            Some(failure) => Self::of_failure(failure, operation, &keys.iter().collect::<Vec<_>>(), error.0.source),
            None => error,
        };
        let others: Vec<&LockKey> = held.iter().filter(|key| !error.may_be_held().contains(key)).collect();
        let mut error = error.and_may_be_held(&others);
        error.0.may_be_held = held;
        Some(error)
    }

    /// Of a call that has tried since to release whatever it may have had, and could not release these locks.
    pub(crate) fn and_holds_only(mut self, left: &[&LockKey]) -> Self {
        self.0.may_be_held.clear();
        self.and_may_be_held(left)
    }

    /// Names also these locks, which may be held until their leases end.
    pub(crate) fn and_may_be_held(mut self, keys: &[&LockKey]) -> Self {
        if !keys.is_empty() {
            self.0.message.push_str(&format!("; {} may be held until the lease ends", Locks(keys)));
            self.0.may_be_held.extend(keys.iter().map(|key| (*key).clone()));
        }
        self
    }

    pub(crate) fn lost(keys: &[&LockKey]) -> Self {
        Self::of_failure(Failure::Lost, Operation::Renew, keys, None)
    }

    pub(crate) fn out_of_time(keys: &[&LockKey], what: &str, needed: Duration, remaining: Duration) -> Self {
        let message = format!(
            "the {what} of {} has {} left, but needs {}: renew first, or leave the step to the next invocation",
            Locks(keys),
            if remaining.is_zero() { "no time".to_owned() } else { format!("{:?}", in_millis(remaining)) },
            if needed.is_zero() { "some".to_owned() } else { format!("{:?}", in_millis(needed)) },
        );
        Self::new(ErrorKind::OutOfTime, message).with(Detail::Time { needed, remaining })
    }
}

pub(crate) fn kind_of(rejection: &Rejection) -> ErrorKind {
    match rejection {
        Rejection::Invalid(_) => ErrorKind::InvalidRequest,
        Rejection::Table(_) => ErrorKind::Table,
        Rejection::Denied(_) => ErrorKind::Denied,
    }
}

#[doc(hidden)]
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
