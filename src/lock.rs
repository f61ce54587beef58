//! The guard: a held lock, and what may be done with it.

use crate::budget::Budget;
use crate::client::LockClient;
use crate::commit::{self, Commit, CommitAndRelease};
use crate::drive::{Term, drive};
use crate::error::{Error, ErrorKind};
use crate::protocol::{
    DataChange, Holding, LockKey, LockToken, ReleaseVerdict, RenewVerdict, Renewal, from_epoch_millis,
};
use crate::release::{Release, ReleaseOutcome};
use crate::validity::Validity;
use aws_sdk_dynamodb::types::TransactWriteItem;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};
use tracing::field::Empty;

/// A held lock.
///
/// Holding it means: until [`remaining`](Lock::remaining) is zero, no other client was granted the
/// lock, as long as clocks behave. Between two steps of the work call
/// [`checkpoint`](Lock::checkpoint); nothing renews behind your back. What is written while the
/// lock is held should carry its [`fencing_token`](Lock::fencing_token), because a process may be
/// paused between its last check and its effect.
///
/// Give it back with [`release`](Lock::release). Dropping it **cannot** release it, since a frozen
/// or killed sandbox runs nothing: a dropped lock stays taken until its lease ends (and, for others,
/// [`max_clock_skew`](crate::LockClientBuilder::max_clock_skew) longer), and a warning says until when.
/// [`LockClient::with_lock`] releases on success and on error alike.
#[must_use = "a lock that is dropped stays taken until its lease ends: release it, or use `with_lock`"]
pub struct Lock {
    pub(crate) client: LockClient,
    pub(crate) hold: Hold,
    pub(crate) budget: Option<Budget>,
    data: Option<Vec<u8>>,
    /// Shared with whoever polls work under this lock, once there is any.
    validity: Option<Validity>,
}

/// The lock itself, which the guard passes on to its release. Warns when it is dropped before.
pub(crate) struct Hold {
    pub(crate) holding: Box<Holding>,
    pub(crate) state: AtomicU8,
}

/// Believed to be ours until the lease runs out.
pub(crate) const HELD: u8 = 0;
/// The lease was seen to have run out: not ours again until a renewal succeeds.
const EXPIRED: u8 = 1;
/// Another grant has it, or it was released.
pub(crate) const LOST: u8 = 2;
/// Released or handed over: the guard is over, whatever the answer.
const OVER: u8 = 3;

impl Lock {
    pub(crate) fn granted(
        client: LockClient,
        holding: Box<Holding>,
        budget: Option<Budget>,
        data: Option<Vec<u8>>,
    ) -> Self {
        Self { client, hold: Hold { holding, state: AtomicU8::new(HELD) }, budget, data, validity: None }
    }

    /// Which lock.
    pub fn key(&self) -> &LockKey {
        &self.hold.holding.key
    }

    /// Who holds it: us, by this name.
    pub fn owner(&self) -> &str {
        &self.hold.holding.owner
    }

    /// The fencing token: larger than that of every earlier grant of this key.
    ///
    /// Store it with what you write, and refuse writes with a smaller one: on DynamoDB
    /// `attribute_not_exists(lastToken) OR lastToken <= :token`. Then an old holder that wakes up
    /// late cannot overwrite what a newer holder wrote.
    ///
    /// It is no idempotency key: whoever does the same work again has a larger one.
    pub fn fencing_token(&self) -> u64 {
        self.hold.holding.token
    }

    /// The payload that the lock's row had when it was acquired: what the last holder left, or what
    /// was given with [`data`](crate::Acquire::data). `None` after [`resume`](LockClient::resume).
    pub fn data(&self) -> Option<&[u8]> {
        self.data.as_deref()
    }

    /// What is left of the lease, by whichever clock is more pessimistic; zero once it was seen to
    /// have run out (until a checkpoint succeeds) or the lock is lost. Sends nothing.
    pub fn remaining(&self) -> Duration {
        if self.hold.state.load(Ordering::Relaxed) != HELD {
            return Duration::ZERO;
        }
        let remaining = match &self.validity {
            Some(validity) => validity.remaining(),
            None => self.hold.holding.belief.remaining(self.client.clock().now()),
        };
        if remaining.is_zero() {
            self.hold.state.store(EXPIRED, Ordering::Relaxed);
        }
        remaining
    }

    /// When the lease ends by our wall clock, as written on the row for others to see.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        from_epoch_millis(self.hold.holding.ends)
    }

    /// Refuses a step that the lease cannot cover. Sends nothing.
    ///
    /// # Errors
    /// [`OutOfTime`](ErrorKind::OutOfTime): checkpoint first, or leave the step to somebody else.
    pub fn fits(&self, step: Duration) -> Result<(), Error> {
        let remaining = self.remaining();
        if remaining.is_zero() || remaining < step {
            return Err(Error::out_of_time(self.key(), "lease", step, remaining));
        }
        Ok(())
    }

    /// Renews the lease, and so learns whether the lock is still ours. Call it between steps.
    ///
    /// The renewed lease is as long as the first one; under a budget it does not reach beyond the
    /// budget's end and grace. A lease that ran out can still be renewed while nobody else was
    /// granted the lock: the write itself proves it.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost): stop, and do not write. [`Unknown`](ErrorKind::Unknown) and
    /// [`Unavailable`](ErrorKind::Unavailable): the lock is ours for [`remaining`](Lock::remaining)
    /// as before; ask again. `InvalidRecord`, `Table`, `Denied`.
    ///
    /// # Requests and IAM actions
    /// One write (`dynamodb:UpdateItem`); a second one after a lost answer, or when a copy of this
    /// lock changed its lease elsewhere. One consistent read (`dynamodb:GetItem`) when DynamoDB refuses and has no
    /// row to show, as it does when the row was deleted.
    ///
    /// # Cancel safety
    /// Cancel safe: when the future is dropped the lease may or may not have been renewed, and the
    /// guard believes that it was not.
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        self.renew().await
    }

    /// A [`checkpoint`](Lock::checkpoint) that changes something: a longer lease, or the payload.
    pub fn renew(&mut self) -> Renew<'_> {
        Renew { lock: self, lease: None, data: DataChange::Keep }
    }

    /// Runs a future and renews the lease while it runs, a third of the lease after the last
    /// renewal, in the same task: nothing is spawned. For one long step that cannot be cut by
    /// checkpoints.
    ///
    /// The renewals stop with the caller's own polling: a future that blocks its thread, or a frozen
    /// sandbox, renews nothing. Before each poll of the future the lease is looked at, by both clocks. Once it has
    /// ended, the future stands still until a renewal has told whether the lock is still ours, and goes on only
    /// if it is.
    ///
    /// # Errors
    /// `Lost` as soon as a renewal finds the lock lost, and whatever the last renewal said when the
    /// lease has ended. The future is then dropped where it stands. A renewal that fails before
    /// is tried again.
    ///
    /// # Requests and IAM actions
    /// One write per third of the lease: `dynamodb:UpdateItem`.
    ///
    /// # Cancel safety
    /// As that of the future itself; the lock stays usable.
    pub async fn keep_alive<F: Future>(&mut self, work: F) -> Result<F::Output, Error> {
        let validity = self.validity();
        let mut work = pin!(work);
        loop {
            let mut pause = self.client.clock().sleep(self.until_next_renewal());
            let done = poll_fn(|context| match validity.poll(work.as_mut(), context) {
                // After a freeze the lease may have ended long before the pause: renew at once.
                Poll::Ready(done) => Poll::Ready(done),
                Poll::Pending => pause.as_mut().poll(context).map(|()| None),
            });
            if let Some(output) = done.await {
                return Ok(output);
            }
            let renewed = {
                let mut renewal = pin!(self.checkpoint());
                let first = poll_fn(|context| match validity.poll(work.as_mut(), context) {
                    Poll::Ready(Some(output)) => Poll::Ready(Ok(output)),
                    // The lease has ended: the work stands still until the renewal has told.
                    Poll::Ready(None) | Poll::Pending => renewal.as_mut().poll(context).map(Err),
                });
                first.await
            };
            match renewed {
                Ok(output) => return Ok(output),
                // Renewed, but not beyond the end of the budget: past that the lease covers nothing.
                Err(Ok(())) => self.fits(Duration::ZERO)?,
                Err(Err(error)) if error.is_lost() || self.remaining().is_zero() => return Err(error),
                Err(Err(error)) => {
                    tracing::warn!(key = %self.key(), %error, "a renewal failed; trying again within the lease");
                }
            }
        }
    }

    /// For whoever polls work while the guard is lent to it.
    pub(crate) fn validity(&mut self) -> Validity {
        let belief = (!self.remaining().is_zero()).then_some(self.hold.holding.belief);
        let clock = self.client.shared_clock();
        self.validity.get_or_insert_with(|| Validity::new(clock.clone(), belief)).clone()
    }

    /// What an answer says of the lock: held anew, or lost.
    pub(crate) fn is_now(&self, state: u8) {
        self.hold.state.store(state, Ordering::Relaxed);
        if let Some(validity) = &self.validity {
            validity.is_now((state == HELD).then_some(self.hold.holding.belief));
        }
    }

    /// A [`ConditionCheck`](aws_sdk_dynamodb::types::ConditionCheck) for a transaction of your own: its
    /// writes are applied only while this grant is current, neither lost nor released. Sends nothing.
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn example(
    /// #     lock: &lambda_lock::Lock, dynamodb: &aws_sdk_dynamodb::Client, record: TransactWriteItem,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// dynamodb.transact_write_items().transact_items(record).transact_items(lock.condition_check()?).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// When the lock was lost the transaction is cancelled, and the reason at this item's place is
    /// `ConditionalCheckFailed`. It orders grants, not the writes of one grant: your own retry of a
    /// transaction needs your own client request token. [`commit`](Lock::commit) does all of that.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) when the guard knows already.
    ///
    /// # IAM actions
    /// Your transaction needs `dynamodb:ConditionCheckItem` on the lock table, beside the actions of its
    /// other items.
    pub fn condition_check(&self) -> Result<TransactWriteItem, Error> {
        if self.hold.state.load(Ordering::Relaxed) == LOST {
            return Err(Error::lost(self.key()));
        }
        commit::fence(&self.client, &self.hold.holding)
    }

    /// Applies writes of yours, and renews the lock, in one transaction: all of it while the lock is
    /// ours, or nothing.
    ///
    /// A holder that was paused and has lost the lock writes nothing. A commit whose answer was lost is
    /// asked for again with the same client request token, so its writes are applied once. Await the
    /// answer; afterwards the lease is as after a [`checkpoint`](Lock::checkpoint).
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn example(lock: &mut lambda_lock::Lock, record: TransactWriteItem) -> Result<(), lambda_lock::Error> {
    /// lock.commit([record]).await?; // applied, or an error that says why not
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`Lost`](ErrorKind::Lost): stop; nothing was applied.
    /// * [`Cancelled`](ErrorKind::Cancelled): one of *your* writes was refused, the error says which one
    ///   and why; nothing was applied. The guard believes what it believed before.
    /// * [`Unknown`](ErrorKind::Unknown): no answer within the budget. Do not commit the same writes
    ///   again: [`settle_commit`](Lock::settle_commit) tells what became of them.
    /// * `Unavailable`: throttled, or other transactions had the items, for the whole budget; nothing
    ///   was applied. `InvalidRequest`: more than 99 writes, more than 4 MB, one of them on the lock's
    ///   own row, or what DynamoDB itself finds invalid. `InvalidRecord`, `Table`, `Denied`.
    ///
    /// # Requests and IAM actions
    /// One `TransactWriteItems`, which DynamoDB bills as two writes per item:
    /// `dynamodb:UpdateItem` on the lock table, and the actions of your writes on theirs. One more
    /// after a lost answer, a conflict with another transaction, or when a copy of this lock renewed it
    /// elsewhere; conflicts are retried within the budget, without a budget within three request
    /// timeouts. A read as with [`checkpoint`](Lock::checkpoint).
    ///
    /// # Limits
    /// A network that delivers a request twice, long after the first was cancelled because of your own
    /// writes, can still have the second one applied until the lock is next renewed or released. (One
    /// that was never answered is not called cancelled before a renewal has ruled that out.)
    ///
    /// # Cancel safety
    /// When the future is dropped, all of it or nothing may have been applied:
    /// [`settle_commit`](Lock::settle_commit) tells.
    pub fn commit(&mut self, writes: impl IntoIterator<Item = TransactWriteItem>) -> Commit<'_> {
        Commit::new(self, writes.into_iter().collect())
    }

    /// Applies writes of yours, and gives the lock back, in one transaction: all of it while the lock
    /// is ours, or nothing. The guard is over from here on.
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn example(lock: lambda_lock::Lock, record: TransactWriteItem) -> Result<(), lambda_lock::Error> {
    /// lock.commit_and_release([record]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`commit`](Lock::commit). Whatever the error, the lock is given back as well as can be, by a
    /// plain release, unless it is lost already. After [`Unknown`](ErrorKind::Unknown) nobody can tell
    /// from the lock whether the writes were applied: look at them.
    ///
    /// # Requests and IAM actions
    /// As [`commit`](Lock::commit), and after an error one write (`dynamodb:UpdateItem`).
    ///
    /// # Cancel safety
    /// When the future is dropped, all of it or nothing may have been applied; the lease frees the lock.
    pub fn commit_and_release(self, writes: impl IntoIterator<Item = TransactWriteItem>) -> CommitAndRelease {
        CommitAndRelease::new(self, writes.into_iter().collect())
    }

    fn until_next_renewal(&self) -> Duration {
        let lease = self.client.rules().believed(self.hold.holding.lease.duration());
        let remaining = self.remaining();
        // Near its end a lease that can be prolonged is renewed more often; one that ends with the
        // budget is not.
        let latest = if self.hold.holding.belief.is_cut_short(lease) { remaining } else { remaining / 2 };
        (lease / 3).min(latest).max(Duration::from_millis(10))
    }

    /// Writes the lock down, to be [resumed](LockClient::resume), [reclaimed](LockClient::reclaim)
    /// or [released](LockClient::release) by the next function or state. The lease keeps running:
    /// checkpoint first if the next one comes late.
    pub fn into_token(self) -> LockToken {
        self.hold.state.store(OVER, Ordering::Relaxed);
        LockToken::of(&self.hold.holding)
    }

    /// A copy of the lock as data, while this guard goes on. Both hold it as one holder.
    pub fn token(&self) -> LockToken {
        LockToken::of(&self.hold.holding)
    }

    /// Gives the lock back. The guard is over from here on, whatever the answer.
    ///
    /// ```no_run
    /// # async fn example(lock: lambda_lock::Lock) -> Result<(), lambda_lock::Error> {
    /// use lambda_lock::ReleaseOutcome;
    /// match lock.release().await? {
    ///     ReleaseOutcome::Released => {}
    ///     ReleaseOutcome::AlreadyGone => { /* ours no more: fenced writes were refused */ }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Release {
        self.hold.state.store(OVER, Ordering::Relaxed);
        Release::of_hold(self.client, self.hold, self.budget)
    }

    /// Releases after work that ended well. The caller has to know if the lock was lost before: another holder may
    /// have worked at the same time.
    pub(crate) async fn finish_work(self) -> Result<(), Error> {
        let key = self.key().clone();
        if self.hold.state.load(Ordering::Relaxed) == LOST {
            self.abandon();
            return Err(Error::lost_by_work(&key));
        }
        match self.release().verdict().await {
            Ok(ReleaseVerdict::Lost) => Err(Error::lost_by_work(&key)),
            Ok(ReleaseVerdict::Released) => Ok(()),
            other => {
                not_released(&key, other.err());
                Ok(())
            }
        }
    }

    /// Releases after work that was stopped because its lease ended.
    pub(crate) async fn cut_short(self) -> Error {
        let key = self.key().clone();
        tracing::warn!(%key, token = self.fencing_token(), "the lease ended while the work ran: the work was stopped");
        if self.hold.state.load(Ordering::Relaxed) == LOST {
            self.abandon();
            return Error::lost(&key);
        }
        match self.release().verdict().await {
            Ok(ReleaseVerdict::Released) => Error::cut_short(&key, true),
            other => {
                not_released(&key, other.err());
                Error::cut_short(&key, false)
            }
        }
    }

    /// Releases after the work, unless the lock is known to be lost; a failure is only logged,
    /// because the work is done and the lease frees the lock.
    pub(crate) async fn finish(self) {
        if self.hold.state.load(Ordering::Relaxed) == LOST {
            return self.abandon();
        }
        let key = self.key().clone();
        match self.release().await {
            Ok(ReleaseOutcome::Released) => {}
            Ok(ReleaseOutcome::AlreadyGone) => not_released(&key, None),
            Err(error) => not_released(&key, Some(error)),
        }
    }

    /// For a grant that was recognised late, when half of its lease was gone already: renewed before
    /// anybody works with it. A call that fails leaves nothing behind, if that can be helped. One that lost
    /// it meanwhile never held it for its caller, who has nothing to stop and may ask again.
    pub(crate) async fn renewed_or_given_back(mut self) -> Result<Self, Error> {
        let Err(error) = self.checkpoint().await else { return Ok(self) };
        let key = self.key().clone();
        self.finish().await;
        Err(match error.kind() {
            ErrorKind::Unknown | ErrorKind::Unavailable | ErrorKind::Lost => {
                Error::unknown(&key, "acquired").because(Some(Box::new(error)))
            }
            _ => error,
        })
    }

    /// Ends the guard without a release.
    pub(crate) fn abandon(&self) {
        self.hold.state.store(OVER, Ordering::Relaxed);
    }

    async fn renewed(&mut self, lease: Option<Duration>, data: DataChange) -> Result<(), Error> {
        self.client.settings().check_write(self.key(), &self.hold.holding.owner, None, &data)?;
        // The lease on the row may be longer, where a copy of this lock was renewed elsewhere.
        lease.map_or(Ok(()), crate::protocol::Lease::check)?;
        let lease = lease.unwrap_or(self.hold.holding.lease.duration());
        self.renew_for(self.term(lease), data).await
    }

    /// This lease, but not beyond the end of the budget.
    pub(crate) fn term(&self, lease: Duration) -> Term {
        match &self.budget {
            Some(budget) => Term::Within(lease, budget.clone()),
            None => Term::Fixed(lease),
        }
    }

    /// One renewal, as checkpoint and resume need it.
    pub(crate) async fn renew_for(&mut self, term: Term, data: DataChange) -> Result<(), Error> {
        if self.hold.state.load(Ordering::Relaxed) == LOST {
            return Err(Error::lost(self.key()));
        }
        let limits = self.client.limits(term, self.budget.as_ref());
        let Self { client, hold: Hold { holding, .. }, .. } = self;
        let key = holding.key.clone();
        let span = tracing::info_span!(
            "lock_renew", %key, token = holding.token, attempts = Empty, waited_ms = Empty, outcome = Empty
        );
        let driven = drive(client, &limits, Renewal::new(client.settings(), holding, data), &span).await;
        span.record("outcome", tracing::field::debug(&driven.verdict));
        let cause = driven.cause;
        match driven.verdict {
            RenewVerdict::Renewed => {
                self.is_now(HELD);
                Ok(())
            }
            RenewVerdict::Lost => {
                self.is_now(LOST);
                tracing::warn!(%key, token = self.fencing_token(), "the lock was lost");
                Err(Error::lost(&key))
            }
            RenewVerdict::InvalidRecord(invalid) => Err(invalid.into()),
            RenewVerdict::Rejected(rejection) => Err(Error::rejected(Some(&key), rejection).because(cause)),
            RenewVerdict::Unavailable => Err(Error::unavailable(&key, "renewed").because(cause)),
            RenewVerdict::Unknown => Err(Error::unknown(&key, "renewed").because(cause)),
        }
    }
}

impl Hold {
    /// For a release of what no guard holds.
    pub(crate) fn of_nobody(holding: Holding) -> Self {
        Self { holding: Box::new(holding), state: AtomicU8::new(OVER) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if matches!(*self.state.get_mut(), HELD | EXPIRED) {
            let Holding { key, token, ends, .. } = &*self.holding;
            tracing::warn!(
                %key, token, taken_until_epoch_millis = ends,
                "a lock was dropped without being released: it stays taken until its lease ends"
            );
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the payload: it is the caller's and does not belong into logs.
        f.debug_struct("Lock")
            .field("key", &self.hold.holding.key)
            .field("owner", &self.hold.holding.owner)
            .field("fencing_token", &self.hold.holding.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// A renewal before it is awaited: `lock.renew().lease(…).await`. Errors, requests and cancel
/// safety are those of [`Lock::checkpoint`].
#[must_use = "a renewal does nothing until it is awaited"]
pub struct Renew<'a> {
    lock: &'a mut Lock,
    lease: Option<Duration>,
    data: DataChange,
}

impl Renew<'_> {
    /// Asks for a longer lease. A shorter one than the lock has is ignored: a renewal never shortens
    /// what others already count on.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Replaces the payload in the lock's row, for instance by the progress made so far.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = DataChange::Set(data.into());
        self
    }

    /// Removes the payload from the lock's row.
    pub fn remove_data(mut self) -> Self {
        self.data = DataChange::Remove;
        self
    }
}

impl<'a> IntoFuture for Renew<'a> {
    type Output = Result<(), Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.lock.renewed(self.lease, self.data))
    }
}

impl fmt::Debug for Renew<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renew").field("lock", &self.lock).field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// What is not told to whoever hears of the work's own outcome.
fn not_released(key: &LockKey, error: Option<Error>) {
    match error {
        None => tracing::warn!(%key, "the lock was no longer ours when it was released"),
        Some(error) => tracing::warn!(%key, %error, "the lock was not released; its lease frees it"),
    }
}
