//! Acquire of several locks one after the other, by the order of their keys.
//!
//! The locks that the call has are renewed while it waits for the next one. This is one wait, as that of a single acquire is: in
//! slices from one renewal to the next, each would be too short for a place in line. If a lock is lost, the call gives the others
//! back and begins anew.

use super::LockSet;
use super::acquire::{AcquireAll, wrong_count};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::clock::Clock;
use crate::engine::deadline::{Deadline, WaitEnd, lease_policy};
use crate::engine::error::{Detail, Error, ErrorKind, in_millis};
use crate::lock::acquire::Acquire;
use crate::lock::at_once::{Task, at_once};
use crate::lock::awaited::awaited;
use crate::lock::guard::Lock;
use crate::lock::held::{HeldLocks, Hold};
use crate::lock::renew::can_be_extended;
use crate::lock::terms::{Terms, Tried};
use crate::lock::work::may_hold;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lambda_lock_protocol::{DataChange, Instants, LockKey, Locks, Observation};
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// An acquire of several locks in order, before it is awaited. Await it to get a [`LockSet`].
///
/// # Errors
/// Returns the errors of [`acquire`](crate::LockClient::acquire), and releases what it had. A refusal names the one lock
/// that it could not get, see [`Error::refusals`]. Returns `OutOfTime` for a lease that ends before its renewals have their responses,
/// and where its time is over before it has asked for every lock: it does not know who holds those that the error names. Returns
/// `Unknown`, with that error as its source, where a lock could not be released, for whatever reason. [`Error::may_be_held`] has all
/// locks that may still be held, and the log says why.
///
/// The time of the call is that of all locks together, and leaves the reserve of the budget as one `acquire` does: it waits for
/// holders until the reserve begins. Without a wait, or with a short one, it asks for free locks for three request timeouts,
/// but never after the end of the budget. The last request may end up to 250 ms later, and what the call has is released within one
/// request timeout after that.
///
/// # Requests and IAM actions
/// It sends the requests of [`acquire`](crate::LockClient::acquire) for each lock, one after the other, and renewals of
/// those that it has, one per lock and third of the lease: `dynamodb:UpdateItem` and `dynamodb:GetItem`.
///
/// # Cancel safety
/// If the future is dropped, the locks that it had stay held until their leases end.
#[derive(Debug)]
#[must_use = "an acquire does nothing until it is awaited"]
pub struct AcquireInOrder<'a>(AcquireAll<'a>);

/// After so many renewals in a row that were applied too late for their lease, the lease is too short for the response times.
const MAX_LATE: u32 = 5;

/// How long after a renewal that came too late the next one is sent.
const PAUSE: Duration = Duration::from_millis(25);

/// The time of the call, which is that of all locks together.
struct CallTime {
    clock: Arc<dyn Clock>,
    began: Instants,
    total: Duration,
}

impl CallTime {
    fn passed(&self) -> Duration {
        self.clock.now().longest_since(self.began)
    }

    fn left(&self) -> Duration {
        self.total.saturating_sub(self.passed())
    }
}

/// How the rest of a round ended.
enum Round {
    Granted(HeldLocks),
    /// One of the locks was lost meanwhile.
    Again,
}

impl<'a> AcquireAll<'a> {
    /// Acquires the locks one after the other, by the order of their keys, instead of together. Await it to get a
    /// [`LockSet`].
    ///
    /// It is right for many keys, for keys that are busy, and for global tables with strong consistency, which have no
    /// transactions. It holds the locks that it has while it waits for the next one, and renews them meanwhile, as
    /// [`keep_alive`](crate::Lock::keep_alive) does. Before it returns them, it renews each whose last renewal is longer ago
    /// than a third of its lease, so that no work begins with a lock that was broken before that. If one is lost, it begins anew.
    /// It never waits for a key before one that it holds, so callers in order cannot block each other for ever.
    pub fn in_order(self) -> AcquireInOrder<'a> {
        AcquireInOrder(self)
    }
}

impl AcquireInOrder<'_> {
    async fn acquire(mut self) -> Result<LockSet, Error> {
        self.0.wait()?;
        let owner = self.0.checked_owner()?;
        lease_policy(&self.0.named(), self.0.terms.lease, self.0.terms.budget.as_ref())?;
        self.0.keys.sort_by(|one, other| (one.key(), one.sort_key()).cmp(&(other.key(), other.sort_key())));
        let time = self.time()?;
        let mut seen: Vec<Option<Observation>> = self.0.keys.iter().map(|key| self.0.observation_of(key)).collect();
        loop {
            if let Round::Granted(held) = self.round(&owner, &mut seen, &time).await? {
                return Ok(LockSet { held });
            }
        }
    }

    /// It waits for holders as long as one acquire does, and asks for free locks at least as long as a call may wait for responses.
    fn time(&self) -> Result<CallTime, Error> {
        let AcquireAll { engine, terms: Terms { budget, .. }, .. } = &self.0;
        let began = engine.clock.now();
        let total = self.0.wait()?.max(engine.time_for_faults());
        let total = budget.as_ref().and_then(Budget::remaining).map_or(total, |left| total.min(left));
        Ok(CallTime { clock: engine.clock.clone(), began, total })
    }

    async fn round(&self, owner: &str, seen: &mut [Option<Observation>], time: &CallTime) -> Result<Round, Error> {
        let mut holds: Vec<Hold> = Vec::new();
        for (key, seen) in self.0.keys.iter().zip(seen) {
            if !holds.is_empty() && time.left().is_zero() {
                let not_asked: Vec<&LockKey> = self.0.keys[holds.len()..].iter().collect();
                let error = no_time_to_ask(&not_asked, time.total, time.passed());
                return Err(self.given_back(holds, error).await);
            }
            let (acquired, failed) = self.acquire_next(key, owner, &mut holds, seen.clone(), time).await;
            match (acquired, failed) {
                (Ok(Tried::Granted(lock)), failed) => {
                    holds.extend(lock.held.into_holds());
                    if let Some(error) = failed {
                        return self.unless_lost(holds, error).await;
                    }
                }
                (Ok(Tried::Refused(refusal)), Some(error)) if !self.0.wait()?.is_zero() => {
                    *seen = Some(refusal.observation);
                    return self.unless_lost(holds, error).await;
                }
                // Whatever became of the other locks, it is this one that the call could not get.
                (Ok(Tried::Refused(refusal)), _) => {
                    return Err(self.given_back(holds, Error::refused(vec![refusal], 1)).await);
                }
                (Err(error), _) => return Err(self.given_back(holds, error).await),
            }
        }
        self.proven(holds, time).await
    }

    /// Renews the locks whose last renewal is too long ago to begin to work with them: one of them may have been broken since.
    /// A lock becomes old also while another one is renewed, so it looks again. A renewal without a response is not repeated here
    /// while the lease lasts.
    async fn proven(&self, mut holds: Vec<Hold>, time: &CallTime) -> Result<Round, Error> {
        let AcquireAll { engine, terms: Terms { budget, .. }, .. } = &self.0;
        let clock = &engine.clock;
        let mut late = 0;
        let mut tried = vec![false; holds.len()];
        loop {
            let began = clock.now();
            let is_due = |(hold, tried): &(&mut Hold, &mut bool)| {
                hold.validity.remaining().is_zero() || is_old(engine, hold) && !**tried
            };
            let due = holds.iter_mut().zip(&mut tried).filter(is_due);
            let renewals = due.map(|(hold, tried)| {
                *tried = true;
                let deadline = hold.deadline_of_renewal(engine, budget.as_ref()).at_most(time.left());
                Box::pin(renewed(engine, hold, deadline)) as Task<'_, _>
            });
            let renewed = at_once(renewals).await;
            // What another renewal may repair is worth less to the caller than what it cannot.
            let failed = renewed.into_iter().filter_map(Result::err).min_by_key(may_be_renewed);
            let renewed = failed.map_or_else(|| holds.iter().try_for_each(ensure_remaining), Err);
            match renewed {
                Ok(()) if holds.iter().zip(&tried).any(|(hold, tried)| is_old(engine, hold) && !tried) => late = 0,
                Ok(()) => {
                    return self.held(holds).map(Round::Granted).ok_or_else(|| wrong_count(0));
                }
                Err(error) if error.kind() == ErrorKind::OutOfTime => {
                    late += 1;
                    if late >= MAX_LATE || self.0.wait()?.is_zero() {
                        let took = clock.now().longest_since(began);
                        let lease = holds.iter().map(|hold| hold.believed_lease(engine)).min().unwrap_or_default();
                        let error = lease_too_short(&self.0.named(), lease, took);
                        return self.unless_lost(holds, error).await;
                    }
                    clock.sleep(PAUSE).await;
                }
                Err(error) if may_be_renewed(&error) && !self.0.wait()?.is_zero() => late = 0,
                Err(error) => return self.unless_lost(holds, error).await,
            }
        }
    }

    /// Waits for this lock, and renews the locks that the call has meanwhile. Returns also why one of these may not be ours any
    /// more. The wait ends early then.
    async fn acquire_next(
        &self,
        key: &LockKey,
        owner: &str,
        holds: &mut [Hold],
        seen: Option<Observation>,
        time: &CallTime,
    ) -> (Result<Tried<Lock>, Error>, Option<Error>) {
        let AcquireAll { engine, terms, .. } = &self.0;
        let mut request = Acquire::new(engine, key.clone());
        request.terms = Terms { owner: Some(owner.to_owned()), ..terms.clone() };
        request = seen.into_iter().fold(request, Acquire::observation);
        let (options, deadline) = match request.prepared(true) {
            Ok(prepared) => prepared,
            Err(error) => return (Err(error), None),
        };
        let wait_end = WaitEnd::default();
        let mut acquire = pin!(request.acquire_with(options, deadline.at_most(time.left()).until(wait_end.clone())));
        let mut renewals = pin!(keep_renewed(engine, terms.budget.as_ref(), holds));
        let mut failed = None;
        let acquired = poll_fn(|context| {
            if failed.is_none()
                && let Poll::Ready(error) = renewals.as_mut().poll(context)
            {
                failed = Some(error);
                wait_end.end();
            }
            acquire.as_mut().poll(context)
        });
        (acquired.await, failed)
    }

    /// Gives the locks back, and returns why.
    async fn given_back(&self, holds: Vec<Hold>, why: Error) -> Error {
        let Some(mut held) = self.held(holds) else { return why };
        let left = held.give_back_within(self.time_to_give_back()).await;
        if left.is_empty() {
            return why;
        }
        // The lock that the call could not get may be held too, if that outcome is unknown.
        let asked = why.may_be_held().to_vec();
        may_hold(&left.into_iter().chain(&asked).collect::<Vec<_>>(), why)
    }

    fn held(&self, holds: Vec<Hold>) -> Option<HeldLocks> {
        HeldLocks::all_of(self.0.engine, self.0.terms.budget.clone(), holds)
    }

    /// The reserve of the budget is not for the locks of a call that has failed: once it begins, one response is waited for.
    fn time_to_give_back(&self) -> Option<Budget> {
        let AcquireAll { engine, terms: Terms { budget, .. }, .. } = &self.0;
        let time = budget.as_ref()?.wait()?.max(engine.request_timeout).min(budget.as_ref()?.remaining()?);
        Some(Budget::lasting_on(engine.clock.clone(), time))
    }

    /// A lock that was lost while the call waited is no reason to give up.
    async fn unless_lost(&self, holds: Vec<Hold>, error: Error) -> Result<Round, Error> {
        let Some(mut held) = self.held(holds) else { return Err(error) };
        let lost: Vec<LockKey> = held.lost().into_iter().cloned().collect();
        let ends = lost.is_empty() || self.0.wait()?.is_zero();
        let left = held.give_back_within(self.time_to_give_back()).await;
        // A lock that stays behind would refuse the next round.
        match (ends, left.is_empty()) {
            (false, true) => Ok(Round::Again),
            // The caller never held the lock, so it has nothing to stop.
            (true, true) if error.is_lost() => {
                Err(may_hold(&lost.iter().collect::<Vec<_>>(), error).and_holds_only(&[]))
            }
            _ => Err(given_up(&left, error)),
        }
    }
}

/// The error of a call that gave its locks back. Some may have stayed behind.
fn given_up(left: &[&LockKey], why: Error) -> Error {
    if left.is_empty() { why.and_holds_only(&[]) } else { may_hold(left, why) }
}

/// Renews each lock as [`Lock::keep_alive`](crate::Lock::keep_alive) does, but also after its lease has ended, because nobody works
/// meanwhile. A renewal that takes long delays none of another lock. Returns why one of them may not be ours any more.
async fn keep_renewed(engine: &Engine, budget: Option<&Budget>, holds: &mut [Hold]) -> Error {
    let mut failed: FuturesUnordered<_> = holds.iter_mut().map(|hold| keep_one_renewed(engine, budget, hold)).collect();
    match failed.next().await {
        Some(error) => error,
        None => pending().await,
    }
}

async fn keep_one_renewed(engine: &Engine, budget: Option<&Budget>, hold: &mut Hold) -> Error {
    let clock = &engine.clock;
    let mut late = 0;
    loop {
        clock.sleep(hold.until_next_renewal(engine)).await;
        let began = clock.now();
        // It ended with the budget, and so does the wait.
        if hold.validity.remaining().is_zero() && !can_be_extended(budget) {
            return pending().await;
        }
        let deadline = hold.deadline_of_renewal(engine, budget);
        match renewed(engine, hold, deadline).await {
            Err(error) if !may_be_renewed(&error) => return error,
            Err(error) if error.kind() == ErrorKind::OutOfTime => late += 1,
            _ => late = 0,
        }
        if late >= MAX_LATE {
            let took = clock.now().longest_since(began);
            return lease_too_short(&[hold.key()], hold.believed_lease(engine), took);
        }
    }
}

/// Whether the last proof that the lock is ours is older than it becomes while somebody works and keeps it alive.
fn is_old(engine: &Engine, hold: &Hold) -> bool {
    hold.holding.validity.age(engine.clock.now()) > hold.believed_lease(engine) / 3
}

/// Renews the lock. A renewal that fails while the lease lasts is no failure.
async fn renewed(engine: &Engine, hold: &mut Hold, deadline: Deadline) -> Result<(), Error> {
    match hold.renew(engine, &deadline, &DataChange::Keep).await {
        Err(error) if error.is_lost() || hold.validity.remaining().is_zero() => Err(error),
        // The lease may have ended all the same: the process was frozen for longer, or the budget has ended.
        _ => ensure_remaining(hold),
    }
}

fn ensure_remaining(hold: &Hold) -> Result<(), Error> {
    hold.ensure_remaining(Duration::ZERO)
}

/// Whether another renewal may succeed. Nobody works meanwhile, so a lease that has ended is no reason to give up.
fn may_be_renewed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable | ErrorKind::OutOfTime)
}

awaited!(AcquireInOrder<'a> => Result<LockSet, Error>, |acquire| acquire.acquire());

/// Of an acquire whose time was over before it had asked for these locks.
fn no_time_to_ask(keys: &[&LockKey], time: Duration, took: Duration) -> Error {
    let message = format!(
        "{} {} not asked for, because the call has {:?} for all of its locks, and {:?} have passed: retry later, give it more \
         time, or ask for fewer locks",
        Locks(keys),
        if keys.len() > 1 { "were" } else { "was" },
        in_millis(time),
        in_millis(took)
    );
    Error::new(ErrorKind::OutOfTime, message).with(Detail::Time { needed: took, remaining: time })
}

/// Of an acquire whose leases end before the responses to their renewals.
fn lease_too_short(keys: &[&LockKey], lease: Duration, took: Duration) -> Error {
    let message = format!(
        "a lease of {lease:?} is too short for {}: a renewal took {:?}, and the lease was over by then; give a lease of \
         several times the response time, and a budget that covers it",
        Locks(keys),
        in_millis(took)
    );
    Error::new(ErrorKind::OutOfTime, message).with(Detail::Time { needed: took, remaining: lease })
}
