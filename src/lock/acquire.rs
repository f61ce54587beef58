//! Acquire, try-acquire and reclaim: the options of the caller, and what the result means.

use super::awaited::awaited;
use super::guard::Lock;
use super::terms::{Terms, Tried, reported};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::Deadline;
use crate::engine::error::{Error, Refusal};
use crate::engine::operation::{Ended, operation_span};
use crate::engine::port::EnginePort;
use lambda_lock_protocol::{
    self as protocol, AcquireOptions, Acquired, Attribute, AttributesChange, DataChange, Failure, Holding, Invalid,
    LockKey, Named, Observation, Operation, Queueing, SavedLock,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::Empty;
use tracing::{Instrument, Span};

/// An acquire before it is awaited. Await it to wait for the lock and get a [`Lock`], or [try once](Acquire::try_once). See
/// [`LockClient::acquire`](crate::LockClient::acquire) for errors, requests and cancel safety.
#[must_use = "an acquire does nothing until it is awaited"]
pub struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    key: LockKey,
    pub(super) terms: Terms,
    data: DataChange,
    attributes: BTreeMap<String, Attribute>,
    keep_attributes: bool,
    observation: Option<Observation>,
    queueing: Queueing,
    reclaimed: Option<SavedLock>,
}

/// A reclaim of a saved lock before it is awaited. Await it to get a [`Lock`]. The owner, the workflow and the [additional
/// attributes](Acquire::attribute) stay those of the grant that is reclaimed. See [`LockClient::reclaim`](crate::LockClient::reclaim) for
/// errors, requests and cancel safety.
#[must_use = "a reclaim does nothing until it is awaited"]
#[derive(Debug)]
pub struct Reclaim<'a>(Acquire<'a>);

impl<'a> Acquire<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, key: LockKey) -> Self {
        Self {
            engine,
            key,
            terms: Terms::default(),
            data: DataChange::Keep,
            attributes: BTreeMap::new(),
            keep_attributes: false,
            observation: None,
            queueing: Queueing::default(),
            reclaimed: None,
        }
    }

    /// Sets the budget of the work that the lock is for. The lease covers the rest of the budget. An acquire that waits
    /// for another holder, or for a transaction in progress, leaves the budget's reserve for the work; one that DynamoDB
    /// throttles, or does not answer, may use it for up to three request timeouts. Checkpoints extend the lease up to the end of the budget and no further.
    pub fn within(mut self, budget: &Budget) -> Self {
        self.terms.budget = Some(budget.on(&self.engine.clock));
        self
    }

    /// Sets the lease, from 1 ms to 366 days, rounded up to whole milliseconds. Default: what the budget needs. The
    /// holder relies on `lease / (1 + drift)` of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = Some(lease);
        self
    }

    /// Stores a payload in the lock's row, or removes the one that the last holder left: [`DataChange::Remove`]. The next holder gets
    /// it, and peek shows it. Default: the row keeps what the last holder left, see [`Lock::data`].
    pub fn data(mut self, data: impl Into<DataChange>) -> Self {
        self.data = data.into();
        self
    }

    /// Adds an additional attribute to the lock's row, under its own name: a text or a number for whoever reads the row,
    /// such as a dashboard, an index or another lock client. [`peek`](crate::operator::Operator::peek) shows it, and so does
    /// [`Refusal`](crate::Refusal) to a caller that is refused. In contrast to it, [`data`](Acquire::data) is one payload that the
    /// next holder gets. Default: none.
    ///
    /// The attributes belong to this grant. Renewals and the release keep them. The next grant removes them and writes
    /// its own, unless it is told to [keep](Acquire::keep_attributes) them. A [reclaim](crate::LockClient::reclaim)
    /// keeps them.
    ///
    /// ```no_run
    /// # async fn example(locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget) -> Result<(), lambda_lock::Error> {
    /// let lock = locks.acquire("nightly").within(budget).attribute("job", "billing").attribute("shard", 5).await?;
    /// # lock.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A lock has at most 20 of them. A name has 1 to 255 bytes and no comma, and is not one of the lock record's, of the
    /// table's keys or of the TTL attribute. Do not take the name of a TTL attribute that the table has and this client has
    /// not, because DynamoDB would delete the row of a held lock. Names, values and payload fit into the 400 KB of an item. Otherwise the
    /// acquire returns `InvalidRequest` and sends no request. What is kept of an earlier grant is not counted. If the
    /// row becomes too large with it, DynamoDB refuses the write, and the acquire returns `InvalidRequest`.
    ///
    /// # Requests
    /// One more write, only when the row has additional attributes of an earlier grant with other names than this
    /// acquire gives: the first write is refused and shows them, and the second one removes them.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Adds additional attributes, see [`attribute`](Acquire::attribute).
    pub fn attributes<N: Into<String>, V: Into<Attribute>>(
        mut self,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.attributes.extend(attributes.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    fn attributes_change(&mut self) -> Result<AttributesChange, Invalid> {
        let given = std::mem::take(&mut self.attributes);
        if self.keep_attributes && !given.is_empty() {
            return Err(Invalid::new(format!(
                "the acquire of the lock {} gives additional attributes and keeps those of the last grant: do one or \
                 the other",
                Named(&self.key)
            )));
        }
        // A reclaim continues an earlier grant, as with its owner and its workflow.
        let keeps = self.keep_attributes || self.reclaimed.is_some();
        Ok(if keeps { AttributesChange::Keep } else { AttributesChange::Replace(given.into_iter().collect()) })
    }

    fn options(&mut self) -> Result<AcquireOptions, Error> {
        let owner = self.terms.owner(self.engine, &[&self.key])?;
        self.engine.check_lock_key(&self.key)?;
        let attributes = self.attributes_change()?;
        let settings = &self.engine.settings;
        settings.check_grant(&self.key, &owner, self.terms.workflow.as_deref(), &self.data, &attributes)?;
        let reclaim = match &self.reclaimed {
            Some(saved) => protocol::Reclaim::Only(saved.parsed_version()?),
            None if self.terms.reclaim_own => protocol::Reclaim::SameOwner,
            None => protocol::Reclaim::Nobody,
        };
        Ok(AcquireOptions {
            key: self.key.clone(),
            owner,
            workflow: self.terms.workflow.take(),
            data: std::mem::take(&mut self.data),
            attributes,
            reclaim,
            queueing: self.queueing,
            observation: self.observation.take(),
            commit: self.reclaimed.as_ref().and_then(SavedLock::commit),
        })
    }

    /// Checks the settings. Returns what the call asks for, and its time.
    pub(super) fn prepared(&mut self, waits: bool) -> Result<(AcquireOptions, Deadline), Error> {
        let options = self.options()?;
        Ok((options, self.terms.deadline(self.engine, &[&self.key], waits)?))
    }

    /// Makes the guard of a grant. Renews it first where it was found late.
    pub(super) async fn guarded(
        &mut self,
        holding: Holding,
        data: Option<Vec<u8>>,
        renew_first: bool,
        span: &Span,
    ) -> Result<Lock, Error> {
        let lock = Lock::granted(self.engine.clone(), holding, self.terms.budget.take(), data);
        if !renew_first {
            return Ok(lock);
        }
        Ok(lock.held.renewed_or_released().instrument(span.clone()).await?.into())
    }

    async fn acquire(&mut self, waits: bool) -> Result<Tried<Lock>, Error> {
        let (options, deadline) = self.prepared(waits)?;
        self.acquire_with(options, deadline).await
    }

    pub(super) async fn acquire_with(
        &mut self,
        options: AcquireOptions,
        deadline: Deadline,
    ) -> Result<Tried<Lock>, Error> {
        let span = operation_span!("lock_acquire", key = %self.key, owner = options.owner, token = Empty);
        let settings = &self.engine.settings;
        let call = async |port: &mut EnginePort<'_>| protocol::acquire(port, settings, options).await;
        let Ended { result, cause, report } = self.engine.run(&deadline, &span, call).await;
        let tried = match result {
            Ok(Acquired::Granted { holding, data, renew_first }) => {
                self.guarded(holding, data, renew_first, &span).await.map(Tried::Granted)
            }
            Ok(Acquired::Held(seen)) => Ok(Tried::Refused(Refusal::new(self.key.clone(), seen))),
            Err(failure) => {
                if failure == Failure::OutcomeUnknown {
                    let (key, lease) = (&self.key, deadline.lease(self.engine.clock_bounds()));
                    span.in_scope(|| {
                        tracing::warn!(%key, ?lease, "DynamoDB did not answer: if the lock was acquired, it stays held until its lease ends");
                    });
                }
                Err(Error::of_failure(failure, Operation::Acquire, &[&self.key], cause))
            }
        };
        reported(tried, report, &self.key)
    }

    /// Returns the lock. It is an error if another caller holds it.
    async fn or_held(mut self, waits: bool) -> Result<Lock, Error> {
        if waits {
            // Fails first if it cannot wait, before it checks the other settings.
            self.terms.wait(&[&self.key])?;
        }
        match self.acquire(waits).await? {
            Tried::Granted(lock) => Ok(lock),
            Tried::Refused(refusal) => Err(Error::refused(vec![refusal], 1)),
        }
    }

    /// Tries once to acquire the lock. Returns at once when another caller holds it, or when others [wait in
    /// line](Acquire::in_turn) for it: [`out_of_turn`](Acquire::out_of_turn) does not look at the line. A refused try is not an
    /// error. The call needs a budget or a lease.
    ///
    /// ```no_run
    /// # async fn example(locks: &lambda_lock::LockClient) -> Result<(), lambda_lock::Error> {
    /// use lambda_lock::Tried;
    ///
    /// match locks.acquire("nightly").lease(std::time::Duration::from_secs(60)).try_once().await? {
    ///     Tried::Granted(lock) => { /* … the work … */ lock.release().await?; }
    ///     Tried::Refused(refusal) if refusal.left_to_line => println!("it is free, and others wait in line for it"),
    ///     Tried::Refused(refusal) => println!("{} has it", refusal.holder),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`acquire`](crate::LockClient::acquire), except `Held`.
    ///
    /// # Requests
    /// It sends one write, which is granted or refused. It sends one more write when the row is free but was written by
    /// another client, when an observation from an earlier call proves that its holder is dead, or when
    /// [additional attributes](Acquire::attribute) of an earlier grant have to be removed. It sends one more read after
    /// a response was lost.
    ///
    /// # IAM actions
    /// It needs `dynamodb:UpdateItem` and `dynamodb:GetItem` on the table.
    ///
    /// # Cancel safety
    /// The same holds as for [`acquire`](crate::LockClient::acquire).
    pub async fn try_once(mut self) -> Result<Tried<Lock>, Error> {
        self.acquire(false).await
    }

    /// Sets the owner that holds the lock: 1 to 2,048 bytes. Default: a name for this acquire alone,
    /// `{name}/{8 random digits}`. In it, `{name}` is the [budget's name](Budget::owner), such as that of an
    /// invocation, or else the [client's](crate::LockClientBuilder::owner).
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.terms.owner = Some(owner.into());
        self
    }

    /// Sets the workflow that holds the lock, as a Step Functions execution's ARN. If the workflow ends without a
    /// release, [`release_workflow`](crate::LockClient::release_workflow) can release the lock. Default: none.
    pub fn workflow(mut self, workflow: impl Into<String>) -> Self {
        self.terms.workflow = Some(workflow.into());
        self
    }

    /// Keeps the additional attributes that the last grant gave. Default: they are removed, see
    /// [`attribute`](Acquire::attribute). An acquire that also gives some returns `InvalidRequest`.
    pub fn keep_attributes(mut self) -> Self {
        self.keep_attributes = true;
        self
    }

    /// Sets what an earlier, refused call observed. The time of that observation counts towards the proof that the
    /// holder is dead, as long as the holder has not renewed since.
    pub fn observation(mut self, observation: Observation) -> Self {
        self.observation = Some(observation);
        self
    }

    /// Acquires the lock even from a living holder of the same [`owner`](Acquire::owner). A retried task gets
    /// its own lock again, as a new grant that fences off the first try.
    ///
    /// The acquire must name its owner, and the owner must name exactly one holder. Two live calls with the same owner
    /// take the lock from each other, and the last one has it. Only rows of this crate count.
    pub fn reclaim_own(mut self) -> Self {
        self.terms.reclaim_own = true;
        self
    }

    /// Waits in line between calls: for a caller that sleeps, and asks again when it is woken or when its time is over, such as a
    /// workflow. The acquire takes a ticket at once, also if it does not wait. [`Refusal::observation`](crate::Refusal::observation) has the ticket. Give the
    /// observation to the next acquire with [`observation`](Acquire::observation), which then continues to wait in the
    /// same place. Default: a caller that gives up has no place any more.
    ///
    /// The crate wakes nobody. The release of the lock tells whose turn it is, see
    /// [`Release::with_sleeper`](crate::Release::with_sleeper). A caller that does not come within 2 s after a release may be
    /// passed by those that wait in one call, and after 3.5 s and the clock skew by those that sleep too. If its next acquire
    /// finds the lock held then, it takes another place, at the end of the line.
    ///
    /// # Requests
    /// A refused acquire sends one more write (`dynamodb:UpdateItem`), the first time. An acquire that brings a ticket begins
    /// with a read, and sends one write when it is its turn.
    ///
    /// ```no_run
    /// # async fn example(locks: &lambda_lock::LockClient, sleep: impl AsyncFn(std::time::Duration)) -> Result<(), lambda_lock::Error> {
    /// use lambda_lock::Tried;
    /// use std::time::Duration;
    ///
    /// let attempt = || locks.acquire("customer-7").lease(Duration::from_secs(300)).between_calls();
    /// let mut tried = attempt().try_once().await?;
    /// while let Tried::Refused(refusal) = tried {
    ///     // Somebody wakes this caller, or the time is over.
    ///     sleep(refusal.retry_after).await;
    ///     tried = attempt().observation(refusal.observation).try_once().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn between_calls(mut self) -> Self {
        self.queueing = Queueing::BetweenCalls;
        self
    }

    /// Acquires the lock even if others wait in line for it. Use this for a caller that cannot wait in line, such as one
    /// that is started every few seconds to try once. Otherwise it is refused for as long as there is a line. Default: the
    /// lock is left to those in line, see [`in_turn`](Acquire::in_turn).
    pub fn out_of_turn(mut self) -> Self {
        self.queueing = Queueing::Ignored;
        self
    }

    /// Waits in line from the first look that finds the lock held, if it waits: [`try_once`](Acquire::try_once) takes no ticket.
    /// Default: a caller takes its ticket when two looks in a row show the same grant, or when it has waited for a second.
    /// Before that, whoever looks first after a release is granted the lock. Either way it takes a ticket only if it has a
    /// second left to wait.
    ///
    /// Who waits in line is granted the lock in the order of tickets. A free lock is left to those ahead for two seconds if
    /// one is ahead, and half a second longer for each further one, three and a half at most; who does not come by then is
    /// passed. Who gives up says so, and is not waited for. Promise P8 on the [first page](crate#p8-turns) has the exceptions.
    ///
    /// ```no_run
    /// # async fn example(locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget) -> Result<(), lambda_lock::Error> {
    /// let lock = locks.acquire("customer-7").within(budget).in_turn().await?;
    /// # lock.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Requests
    /// One more write (`dynamodb:UpdateItem`) for the ticket, where the lock is held. A call that ends without the lock sends one
    /// more to give its place up. A call whose future is dropped sends none, and is waited for until it is passed.
    ///
    /// With others ahead, it reads the row again after half of the time that it expects them to need, by the turns that it has
    /// seen since it took its ticket: 25 ms to 5 s, or to 400 ms with three ahead or fewer. The first in line does so after a
    /// fifth of the time for which it has been first: 25 to 250 ms.
    pub fn in_turn(mut self) -> Self {
        self.queueing = Queueing::AtOnce;
        self
    }
}

awaited!(Acquire<'a> => Result<Lock, Error>, |acquire| acquire.or_held(true));

impl<'a> Reclaim<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, saved: SavedLock) -> Self {
        let mut acquire = Acquire::new(engine, saved.key());
        acquire.terms.owner = Some(saved.owner().to_owned());
        acquire.terms.workflow = saved.workflow().map(str::to_owned);
        Self(Acquire { reclaimed: Some(saved), ..acquire })
    }

    /// Sets the budget of the work that the lock is for, as [`Acquire::within`] does.
    pub fn within(self, budget: &Budget) -> Self {
        Self(self.0.within(budget))
    }

    /// Sets the lease, as [`Acquire::lease`] does.
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// Stores a payload in the lock's row, or removes it, as [`Acquire::data`] does.
    pub fn data(self, data: impl Into<DataChange>) -> Self {
        Self(self.0.data(data))
    }
}

awaited!(Reclaim<'a> => Result<Lock, Error>, |reclaim| reclaim.0.or_held(false));

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the payload, because it is the caller's data and does not belong in logs.
        f.debug_struct("Acquire").field("key", &self.key).field("owner", &self.terms.owner).finish_non_exhaustive()
    }
}
