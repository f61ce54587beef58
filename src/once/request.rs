//! Once: the options of idempotent work, and the result of a request for it.

use super::attempt::Attempt;
use super::errors;
use super::payload::fingerprint;
use super::status::{self, OnceStatus};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::lease_policy;
use crate::engine::error::{Error, Refusal};
use crate::engine::operation::{Ended, operation_span};
use crate::engine::port::EnginePort;
use crate::lock::guard::Lock;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{
    self as protocol, AcquireOptions, Acquired, AttributesChange, DataChange, Failure, Invalid, LockKey, OnceRecord,
    Operation, Queueing, Reclaim, StoredOutcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;
use tracing::field::Empty;

/// The default of [`keep_for`](Once::keep_for). It is longer than a queue or a caller continues to retry.
pub const DEFAULT_KEEP_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Idempotent work before it is started, see [`LockClient::once`](crate::LockClient::once).
#[derive(Debug)]
#[must_use = "an idempotent work does nothing until it is run or started"]
pub struct Once<'a> {
    pub(super) engine: &'a Arc<Engine>,
    /// The key as the caller gave it, after the prefix of the client.
    pub(super) name: LockKey,
    /// The key of the row.
    pub(super) row: LockKey,
    is_nameless: bool,
    payload: Option<Result<String, Invalid>>,
    keep: Duration,
    lease: Option<Duration>,
    budget: Option<Budget>,
    owner: Option<String>,
    waits: bool,
}

/// The result of idempotent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// This call did the work.
    Done(T),
    /// The work was done before, and this is the result that was stored then.
    Replayed(T),
}

impl<T> Outcome<T> {
    /// Returns the result, whether this call did the work or not.
    pub fn into_result(self) -> T {
        match self {
            Outcome::Done(result) | Outcome::Replayed(result) => result,
        }
    }

    /// Whether the work was done before.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Outcome::Replayed(_))
    }
}

/// What is left to do for idempotent work.
#[derive(Debug)]
#[must_use = "an attempt may have been granted"]
pub enum Started<T> {
    /// The work is to be done, and this attempt does it.
    Attempt(Attempt),
    /// Nothing is left to do. The work was done before, with this result.
    Replayed(T),
}

impl<'a> Once<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, key: LockKey) -> Self {
        let prefix = &engine.key_prefix;
        Self {
            engine,
            row: prefix.before_work(&key),
            is_nameless: key.key().is_empty(),
            name: prefix.before(key),
            payload: None,
            keep: DEFAULT_KEEP_FOR,
            lease: None,
            budget: None,
            owner: None,
            waits: true,
        }
    }

    /// Sets the payload of the work. Calls for one key must have the same payload, or they fail with
    /// [`PayloadMismatch`](crate::ErrorKind::PayloadMismatch). This way, a key that is reused by mistake does not
    /// return the result of other work. The SHA-256 of the payload's canonical JSON is compared, and the payload itself
    /// is not stored. Default: nothing is compared.
    ///
    /// So what is equal as JSON is the same payload:
    /// * The order of the names in an object does not matter, also of a `HashMap`.
    /// * The order of an array matters. A `HashSet` is written in another order by each process: give a `BTreeSet`, or a
    ///   sorted list.
    /// * A field that is `null` is the same as one that is missing. So a deployment may add an optional field while calls are
    ///   retried. In an array, `null` is an element.
    /// * `f32` and `f64` with the same digits are the same number, and so are `1` and `1.0`. (A `serde_json::Value` that was
    ///   made of an `f32` has more digits.) Whole numbers keep all their digits.
    /// * NaN and the infinities are refused with `InvalidRequest`, because JSON has no such numbers.
    ///
    /// Give the part of a request that must not change. A field that is added later and is not `null` makes another payload.
    pub fn payload(mut self, payload: &impl Serialize) -> Self {
        self.payload = Some(fingerprint(payload));
        self
    }

    /// Sets how long the outcome is kept, counted from when it was stored. After that time, a call does the work again.
    /// Default: 24 h. The time is judged by the timestamp of the outcome and [`max_clock_skew`]. With a
    /// [`ttl_attribute`], DynamoDB also deletes the record some time later, by its own clock. So the time is then at least
    /// [`max_clock_skew`] (2 s without one): a shorter one is `InvalidRequest`.
    ///
    /// [`max_clock_skew`]: crate::LockClientBuilder::max_clock_skew
    /// [`ttl_attribute`]: crate::LockClientBuilder::ttl_attribute
    pub fn keep_for(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Sets the budget for the work, and for waiting while another caller does it, as
    /// [`Acquire::within`](crate::Acquire::within) does.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Sets the lease of an attempt, as [`Acquire::lease`](crate::Acquire::lease) does. Default: what the budget needs.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the owner of an attempt. Default: a name for this call alone, as that of [an
    /// acquire](crate::Acquire::owner).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Returns [`Held`](crate::ErrorKind::Held) at once while another caller does the work. Default: it waits for the
    /// result as long as the budget allows for waiting.
    pub fn without_waiting(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Does the work unless it was done before, and stores its result.
    ///
    /// If the work returns an error, the attempt is released and the next call retries the work. If the work should not
    /// be retried, store its error with [`fail_for_good`](Attempt::fail_for_good).
    ///
    /// All calls return the result as it is read from its JSON, also the one that did the work. What JSON does not keep
    /// is therefore missing in each of them: `Some(None)` is `None`, and a field that is skipped has its default. A
    /// result that JSON does not give back at all, such as NaN in an `f64` or a map whose keys are no strings or
    /// numbers, and one that is too large for a record (400 KB), cannot be stored. The work was done, so it is
    /// not done again: this call and later ones fail with [`FailedBefore`](crate::ErrorKind::FailedBefore), until
    /// somebody [resets](crate::operator::Operator::reset) the work.
    ///
    /// The result is stored *after* the work. After a crash in between, the next attempt does the work again. The same
    /// happens when the work returns an error although its effect took place, such as a payment whose response was
    /// lost. If the effects are DynamoDB writes, [`run_and_commit`](Once::run_and_commit) has neither problem. For
    /// other effects, give the other system an idempotency key made of the work's own key. The fencing token is not
    /// such a key, because each attempt has a different token.
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
    /// * [`Held`](crate::ErrorKind::Held): another caller does the work, and the waiting time is over.
    /// * [`Lost`](crate::ErrorKind::Lost): this attempt was too slow, and another attempt has taken over. The outcome
    ///   of the other attempt counts. Nothing of this attempt was stored.
    /// * [`CutShort`](crate::ErrorKind::CutShort): the lease ended while the work ran, and the work was dropped at that
    ///   point. The next call takes over, as it does after a crash.
    /// * [`Unknown`](crate::ErrorKind::Unknown): retry the same call.
    /// * [`FailedBefore`](crate::ErrorKind::FailedBefore): an earlier attempt failed permanently, or the result of this one
    ///   cannot be stored. [`Error::failure`] says why.
    /// * `InvalidRecord`: this is also returned when a stored result cannot be read as `T`.
    /// * It can also return [`PayloadMismatch`](crate::ErrorKind::PayloadMismatch), `InvalidRequest`, `Unavailable`,
    ///   `OutOfTime`, `Table` or `Denied`.
    /// * It returns any error that the work returns.
    ///
    /// # Requests and IAM actions
    /// The first call sends two writes. Later calls send one write, which is refused. While another caller does the
    /// work, it sends the requests of a [waiting acquire](crate::LockClient::acquire). It sends one more read or write
    /// after a response was lost. It needs `dynamodb:UpdateItem` and `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// The same holds as for [`with_lock`](crate::LockClient::with_lock). The attempt stays open until its lease ends,
    /// and the next attempt then takes over.
    pub async fn run<T, E, F>(self, work: F) -> Result<Outcome<T>, E>
    where
        F: AsyncFnOnce(&mut Attempt) -> Result<T, E>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        self.run_and_commit(async |attempt| Ok((work(attempt).await?, Vec::new()))).await
    }

    /// Does the work unless it was done before, and applies the writes that it returns together with its result. These
    /// writes are applied exactly once, even after a crash, a kill or a delay.
    ///
    /// The work returns its result and the writes that are its effects. The writes, the result and the end of the
    /// attempt are one transaction. DynamoDB refuses the transaction of an attempt that was taken over. What the work
    /// itself does elsewhere, such as a payment, is not in the transaction. It is done again after a crash, see
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
    /// Returns the errors of [`run`](Once::run). Also returns [`Cancelled`](crate::ErrorKind::Cancelled) when DynamoDB
    /// refused one of the writes. Then neither the writes nor the result were stored, and the attempt is released. The
    /// writes are not applied either when the result cannot be stored.
    ///
    /// # Requests and IAM actions
    /// It sends the requests of [`run`](Once::run). If there are writes, the second write is one `TransactWriteItems`,
    /// and the writes need their own actions.
    ///
    /// # Cancel safety
    /// The same holds as for [`run`](Once::run).
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
        let watch = attempt.held.watch();
        match watch.run(work(&mut attempt)).await {
            Some(Ok((result, writes))) => Ok(Outcome::Done(attempt.complete_as_read(result, writes).await?)),
            Some(Err(error)) => {
                attempt.failed().await;
                Err(error)
            }
            None => Err(attempt.cut_short().into()),
        }
    }

    /// Starts the work, or returns its stored result. Use this instead of [`run`](Once::run) if you need its parts.
    ///
    /// # Errors, requests, IAM actions
    /// They are those of the first half of [`run`](Once::run).
    ///
    /// # Cancel safety
    /// The same holds as for [`acquire`](crate::LockClient::acquire).
    pub async fn start<T: DeserializeOwned>(mut self) -> Result<Started<T>, Error> {
        let payload = self.payload.take().transpose()?;
        let options = self.options()?;
        let lease = lease_policy(&[&self.name], self.lease, self.budget.as_ref())?;
        let deadline = self.engine.deadline(lease, self.budget.as_ref());
        // Read after the deadline has begun, so that a pause in between does not add time.
        let wait = self.budget.as_ref().filter(|_| self.waits).and_then(Budget::wait);
        let deadline = deadline.waiting(wait.unwrap_or_default(), self.budget.as_ref());
        let span = operation_span!("lock_once", key = %self.name, owner = options.owner, token = Empty);
        let (settings, keep) = (&self.engine.settings, self.keep);
        let call =
            async |port: &mut EnginePort<'_>| protocol::once::start(port, settings, options, payload, keep).await;
        let Ended { result: started, cause, report } = self.engine.run(&deadline, &span, call).await;
        let name = self.name.clone();
        let started = match started {
            Ok(started) => self.started(started).instrument(span.clone()).await,
            Err(failure) => Err(Error::of_failure(failure, Operation::Acquire, &[&self.name], cause)),
        };
        match &started {
            Ok(Started::Attempt(attempt)) => report.granted("once", &name, attempt.fencing_token()),
            Ok(Started::Replayed(_)) => report.ended("once", &name, "replayed"),
            Err(error) => report.failed("once", &name, error),
        }
        started
    }

    /// Reads the record and changes nothing. Returns `None` if the work was never requested.
    ///
    /// # Errors
    /// Returns `InvalidRecord`, `Unknown`, `Unavailable`, `InvalidRequest`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one consistent read: `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// It is cancel safe, because it changes nothing.
    pub async fn status(self) -> Result<Option<OnceStatus>, Error> {
        status::read(self.engine, &self.name, self.row).await
    }

    pub(super) fn check_name(&self) -> Result<(), Invalid> {
        if self.is_nameless {
            return Err(Invalid::new("the key of the work is empty: give text that names it"));
        }
        Ok(())
    }

    fn options(&mut self) -> Result<AcquireOptions, Error> {
        self.check_name()?;
        self.engine.settings.check_keep(self.keep)?;
        let owner = self.engine.owner_of_call(self.owner.take(), self.budget.as_ref());
        self.engine.settings.check_write(&self.row, &owner, None, &DataChange::Keep)?;
        Ok(AcquireOptions {
            key: self.row.clone(),
            owner,
            workflow: None,
            data: DataChange::Keep,
            attributes: AttributesChange::Keep,
            reclaim: Reclaim::Nobody,
            // The record of finished work must not have a line.
            queueing: Queueing::Ignored,
            observation: None,
            commit: None,
        })
    }

    async fn started<T: DeserializeOwned>(self, started: protocol::once::Started) -> Result<Started<T>, Error> {
        use protocol::once::Started as Answer;
        match started {
            Answer::Settled(record) => replayed(&self.name, record),
            Answer::Mismatch(_) => Err(errors::payload_mismatch(&self.name)),
            Answer::Lock(Acquired::Held(seen), _) => Err(Error::refused(vec![Refusal::new(self.name, seen)], 1)),
            Answer::Lock(Acquired::Granted { holding, data, renew_first }, record) => {
                let lock = Lock::granted(self.engine.clone(), holding, self.budget, data);
                let lock = if renew_first { lock.held.renewed_or_released().await?.into() } else { lock };
                Ok(Started::Attempt(Attempt::new(lock, record)))
            }
        }
    }
}

fn replayed<T: DeserializeOwned>(name: &LockKey, record: OnceRecord) -> Result<Started<T>, Error> {
    match record.settled {
        Some((StoredOutcome::Done(json), _)) => {
            let result = serde_json::from_str(&json).map_err(|error| errors::unreadable_result(name, error))?;
            Ok(Started::Replayed(result))
        }
        Some((StoredOutcome::Failed(failure), _)) => Err(errors::failed_before(name, failure)),
        // The protocol never reports such a record as settled.
        None => Err(Error::of_failure(Failure::OutcomeUnknown, Operation::Acquire, &[name], None)),
    }
}
