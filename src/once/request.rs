//! Once: what the caller may say of an idempotent work, and what comes of asking for it.

use super::attempt::Attempt;
use super::payload::fingerprint;
use super::status::{self, OnceStatus};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::call::Call;
use crate::engine::deadline::lease_policy;
use crate::engine::error::{Error, Held};
use crate::lock::guard::Lock;
use crate::protocol::once::NAMESPACE;
use crate::protocol::{
    self, AcquireOptions, Acquired, DataChange, Failure, Invalid, LockKey, OnceRecord, Operation, Reclaim,
    StoredOutcome,
};
use aws_sdk_dynamodb::types::TransactWriteItem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use tracing::field::Empty;

/// How long the outcome of an idempotent work is kept, unless told otherwise: longer than a queue or a
/// caller goes on retrying.
pub const DEFAULT_KEEP_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// An idempotent work before it is begun, see [`LockClient::once`](crate::LockClient::once).
#[must_use = "an idempotent work does nothing until it is run or started"]
pub struct Once<'a> {
    engine: &'a Arc<Engine>,
    /// As the caller calls it.
    name: LockKey,
    payload: Option<Result<String, Invalid>>,
    keep: Duration,
    lease: Option<Duration>,
    budget: Option<Budget>,
    owner: Option<String>,
    waits: bool,
}

/// What came of an idempotent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It was done just now.
    Done(T),
    /// It had been done before: this is the result that was stored then.
    Replayed(T),
}

impl<T> Outcome<T> {
    /// The result, whenever it came about.
    pub fn into_result(self) -> T {
        match self {
            Outcome::Done(result) | Outcome::Replayed(result) => result,
        }
    }

    /// Whether it had been done before.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Outcome::Replayed(_))
    }
}

/// What there is to do for an idempotent work.
#[derive(Debug)]
#[must_use = "an attempt may have been granted"]
pub enum Started<T> {
    /// Everything: this attempt is the one to do it.
    Attempt(Attempt),
    /// Nothing: it had been done before, with this result.
    Replayed(T),
}

impl<'a> Once<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, name: LockKey) -> Self {
        Self {
            engine,
            name,
            payload: None,
            keep: DEFAULT_KEEP_FOR,
            lease: None,
            budget: None,
            owner: None,
            waits: true,
        }
    }

    /// What the work is to be done with. Calls for one key must come with the same payload, or end with
    /// [`PayloadMismatch`](crate::ErrorKind::PayloadMismatch): a key that is reused by mistake does not
    /// get the result of somebody else's work. Compared is the SHA-256 of the payload's canonical JSON;
    /// the payload itself is not stored. Default: nothing is compared.
    pub fn payload(mut self, payload: &impl Serialize) -> Self {
        self.payload = Some(fingerprint(payload));
        self
    }

    /// How long the outcome is kept, counted from when it was stored; afterwards the work would be done
    /// again. Default: 24 h. Judged by its timestamp and [`max_clock_skew`]; with a [`ttl_attribute`]
    /// DynamoDB also deletes the record some time later.
    ///
    /// [`max_clock_skew`]: crate::LockClientBuilder::max_clock_skew
    /// [`ttl_attribute`]: crate::LockClientBuilder::ttl_attribute
    pub fn keep_for(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// The time for the work, and for waiting while somebody else does it: as
    /// [`Acquire::within`](crate::Acquire::within).
    pub fn within(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.on(self.engine.clock()));
        self
    }

    /// The lease of an attempt, as [`Acquire::lease`](crate::Acquire::lease). Default: what the budget
    /// needs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Who does it. Default: a name for this call alone, as that of [an acquire](crate::Acquire::owner).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Does not wait while somebody else does it: [`Held`](crate::ErrorKind::Held) at once. Default:
    /// waits for the result as long as the budget allows for waiting.
    pub fn without_waiting(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Does the work, unless it has been done, and stores its result.
    ///
    /// When the work returns an error, the attempt is given back and the next call tries again; the
    /// error of a work that should not be tried again is stored with
    /// [`fail_for_good`](Attempt::fail_for_good).
    ///
    /// The result is stored *after* the work: a crash in between makes the next attempt do the work
    /// again. So does an error that the work returns although its effect took place, such as a payment whose answer
    /// was lost. Where the effects are DynamoDB writes, [`run_and_commit`](Once::run_and_commit) has none of that.
    /// Elsewhere give the other side an idempotency key made of the work's own key. The fencing token is none: each
    /// attempt has another one.
    ///
    /// ```no_run
    /// # use lambda_lock::{Budget, Error, LockClient};
    /// # #[derive(serde::Serialize)] struct Order { id: String }
    /// # async fn charge(order: &Order, idempotency_key: &str) -> Result<String, Error> { Ok(String::new()) }
    /// # async fn example(locks: &LockClient, order: &Order, budget: &Budget) -> Result<String, Error> {
    /// let once = locks.once(&order.id).payload(order).within(budget);
    /// let outcome = once.run(async |_attempt| charge(order, &order.id).await).await?;
    /// Ok(outcome.into_result())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`Held`](crate::ErrorKind::Held): somebody else is doing it, and the time to wait is over.
    /// * [`PayloadMismatch`](crate::ErrorKind::PayloadMismatch), [`FailedBefore`](crate::ErrorKind::FailedBefore).
    /// * [`Lost`](crate::ErrorKind::Lost): this attempt was too slow, and another one took over. Its
    ///   outcome counts; nothing of this one was stored.
    /// * [`CutShort`](crate::ErrorKind::CutShort): the lease ended while the work ran, which was dropped where it
    ///   stood. As after a crash, the next call takes over.
    /// * [`Unknown`](crate::ErrorKind::Unknown): ask again with the same call.
    /// * `InvalidRequest` also when the result is too large for a record (400 KB); `InvalidRecord` also
    ///   when a stored result is none of `T`; `Unavailable`, `OutOfTime`, `Table`, `Denied`.
    /// * Whatever the work returns.
    ///
    /// # Requests and IAM actions
    /// First call: two writes. Later ones: one write that is refused. While somebody else does it: as a
    /// [waiting acquire](crate::LockClient::acquire). One read or write more after a lost answer.
    /// `dynamodb:UpdateItem`, `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// As [`with_lock`](crate::LockClient::with_lock): the attempt stays open until its lease ends, and the
    /// next one then takes over.
    pub async fn run<T, E, F>(self, work: F) -> Result<Outcome<T>, E>
    where
        F: AsyncFnOnce(&mut Attempt) -> Result<T, E>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        self.run_and_commit(async |attempt| Ok((work(attempt).await?, Vec::new()))).await
    }

    /// Does the work, unless it has been done, and applies the writes that it returns together with its result:
    /// these exactly once, whatever crashes, is killed or comes late.
    ///
    /// The work returns its result and the writes that are its effects. They, the result and the end of
    /// the attempt are one transaction, which is refused to an attempt that somebody else took over. What the work
    /// itself does elsewhere, such as a payment, is not in the transaction: it is done again after a crash, see
    /// [`run`](Once::run).
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # use lambda_lock::{Budget, Error, LockClient};
    /// # #[derive(serde::Serialize)] struct Order { id: String }
    /// # fn booked(order: &Order) -> TransactWriteItem { TransactWriteItem::builder().build() }
    /// # async fn example(locks: &LockClient, order: &Order, budget: &Budget) -> Result<(), Error> {
    /// let once = locks.once(&order.id).payload(order).within(budget);
    /// once.run_and_commit(async |_| Ok::<_, Error>(("booked".to_owned(), vec![booked(order)]))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Once::run), and [`Cancelled`](crate::ErrorKind::Cancelled) when one of the writes was
    /// refused: then neither they nor the result were stored, and the attempt is given back.
    ///
    /// # Requests and IAM actions
    /// As [`run`](Once::run), with one `TransactWriteItems` for the second write where there are writes;
    /// the writes need their own actions.
    ///
    /// # Cancel safety
    /// As [`run`](Once::run).
    pub async fn run_and_commit<T, E, F>(self, work: F) -> Result<Outcome<T>, E>
    where
        F: AsyncFnOnce(&mut Attempt) -> Result<(T, Vec<TransactWriteItem>), E>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        let mut attempt = match self.start().await? {
            Started::Attempt(attempt) => attempt,
            Started::Replayed(result) => return Ok(Outcome::Replayed(result)),
        };
        let validity = attempt.lock_mut().validity();
        match validity.run(work(&mut attempt)).await {
            Some(Ok((result, writes))) => {
                attempt.complete_with(&result, writes).await?;
                Ok(Outcome::Done(result))
            }
            Some(Err(error)) => {
                attempt.failed().await;
                Err(error)
            }
            None => Err(attempt.cut_short().into()),
        }
    }

    /// Begins the work, or answers its result: the parts of [`run`](Once::run), for those who want them.
    ///
    /// # Errors, requests, IAM actions
    /// Those of the first half of [`run`](Once::run).
    ///
    /// # Cancel safety
    /// As [`acquire`](crate::LockClient::acquire).
    pub async fn start<T: DeserializeOwned>(mut self) -> Result<Started<T>, Error> {
        let payload = self.payload.take().transpose()?;
        let options = self.options()?;
        let lease = lease_policy(&self.name, self.lease, self.budget.as_ref())?;
        let wait = self.budget.as_ref().filter(|_| self.waits).and_then(Budget::wait);
        let deadline = self.engine.deadline(lease, self.budget.as_ref()).waiting(wait.unwrap_or_default());
        let span = tracing::info_span!(
            "lock_once", key = %self.name, owner = options.owner, token = Empty, attempts = Empty,
            waited_ms = Empty, outcome = Empty
        );
        let mut call = Call::new(self.engine, &deadline, &span);
        let started = protocol::once::start(&mut call, self.engine.settings(), options, payload, self.keep).await;
        let cause = call.end();
        let started = match started {
            Ok(started) => self.started(started).instrument(span.clone()).await,
            Err(failure) => Err(Error::of_failure(failure, Operation::Acquire, &self.name, cause)),
        };
        match &started {
            Ok(Started::Attempt(attempt)) => span.record("token", attempt.fencing_token()).record("outcome", "granted"),
            Ok(Started::Replayed(_)) => span.record("outcome", "replayed"),
            Err(error) => span.record("outcome", tracing::field::debug(error.kind())),
        };
        started
    }

    /// Reads what the record says, and changes nothing; `None` where the work was never asked for.
    ///
    /// # Errors
    /// `InvalidRecord`, `Unknown`, `Unavailable`, `InvalidRequest`, `Table`, `Denied`.
    ///
    /// # Requests and IAM actions
    /// One consistent read: `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn status(self) -> Result<Option<OnceStatus>, Error> {
        status::read(self.engine, &self.name, self.key()).await
    }

    fn key(&self) -> LockKey {
        LockKey::new(format!("{NAMESPACE}{}", self.name.key()), self.name.sort_key().map(str::to_owned))
    }

    fn options(&mut self) -> Result<AcquireOptions, Error> {
        if self.name.key().is_empty() {
            return Err(Invalid::new("the key of the work is empty: give text that names it").into());
        }
        let owner = self.engine.owner_of_call(self.owner.take(), self.budget.as_ref());
        let key = self.key();
        self.engine.settings().check_write(&key, &owner, None, &DataChange::Keep)?;
        Ok(AcquireOptions {
            key,
            owner,
            workflow: None,
            data: DataChange::Keep,
            reclaim: Reclaim::Nobody,
            observation: None,
            commit: None,
        })
    }

    async fn started<T: DeserializeOwned>(self, started: protocol::once::Started) -> Result<Started<T>, Error> {
        use protocol::once::Started as Answer;
        match started {
            Answer::Settled(record) => replayed(&self.name, record),
            Answer::Mismatch(_) => Err(Error::payload_mismatch(&self.name)),
            Answer::Lock(Acquired::Held(seen), _) => Err(Error::from_held(&self.name, Held::from(seen))),
            Answer::Lock(Acquired::Granted { holding, data, renew_first }, record) => {
                let lock = Lock::granted(self.engine.clone(), holding, self.budget, data);
                let lock = if renew_first { Box::pin(lock.renewed_or_given_back()).await? } else { lock };
                Ok(Started::Attempt(Attempt::new(lock, record)))
            }
        }
    }
}

fn replayed<T: DeserializeOwned>(name: &LockKey, record: OnceRecord) -> Result<Started<T>, Error> {
    match record.settled {
        Some((StoredOutcome::Done(json), _)) => {
            let result = serde_json::from_str(&json).map_err(|error| Error::unreadable_result(name, error))?;
            Ok(Started::Replayed(result))
        }
        Some((StoredOutcome::Failed(failure), _)) => Err(Error::failed_before(name, failure)),
        // Not what the decision calls settled.
        None => Err(Error::of_failure(Failure::OutcomeUnknown, Operation::Acquire, name, None)),
    }
}

impl fmt::Debug for Once<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("key", &self.name).field("keep", &self.keep).finish_non_exhaustive()
    }
}
