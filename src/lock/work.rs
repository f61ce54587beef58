//! Work under held locks: it runs as long as they are ours, and they are released after it. Also how every guard ends of which a
//! lock is lost.

use super::at_once::{Task, at_once};
use super::guard::Lock;
use super::held::{Guard, HeldLocks, Hold};
use super::release::{Release, outcomes};
use crate::engine::budget::Budget;
use crate::engine::error::{BoxError, Error, ErrorKind};
use crate::engine::report;
use lambda_lock_protocol::{Failure, LockKey, Locks, Operation, Released};

impl Lock {
    /// Runs the work and releases the lock, as [`with_lock`](crate::LockClient::with_lock) does. Use it for a lock that was acquired
    /// with other settings, resumed or reclaimed.
    ///
    /// ```no_run
    /// # async fn export() -> Result<(), lambda_lock::Error> { Ok(()) }
    /// # async fn example(locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget) -> Result<(), lambda_lock::Error> {
    /// use std::time::Duration;
    /// let lock = locks.acquire("nightly").within(budget).lease(Duration::from_secs(60)).await?;
    /// lock.run(async |_| export().await).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the error of the work, `CutShort` or `Lost`, as [`with_lock`](crate::LockClient::with_lock) describes.
    ///
    /// # Requests and IAM actions
    /// Those of a [release](Lock::release).
    ///
    /// # Cancel safety
    /// That of [`with_lock`](crate::LockClient::with_lock).
    pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut Lock) -> Result<T, E>,
        E: From<Error>,
    {
        run(self, true, work).await
    }

    /// Does what [`run`](Lock::run) does, but lets the work continue when its lease has ended: another caller may be granted the lock
    /// from then on. Use this for work that renews late and whose writes are fenced. Work that succeeded although the lock was lost
    /// returns `Lost`.
    pub async fn run_without_cut<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut Lock) -> Result<T, E>,
        E: From<Error>,
    {
        run(self, false, work).await
    }
}

/// Runs the work, as long as the locks are ours if it is to be cut, and releases them.
pub(super) async fn run<G, T, E, F>(mut guard: G, is_cut: bool, work: F) -> Result<T, E>
where
    G: Guard,
    F: AsyncFnOnce(&mut G) -> Result<T, E>,
    E: From<Error>,
{
    let watch = guard.held().watch();
    let worked = if is_cut { watch.run(work(&mut guard)).await } else { Some(work(&mut guard).await) };
    match worked {
        Some(result) => guard.into_held().end_work(result).await,
        None => Err(guard.into_held().cut_short().await.into()),
    }
}

impl HeldLocks {
    /// Releases after the work of `run`, and returns what the caller gets.
    pub(crate) async fn end_work<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        match result {
            Ok(done) => {
                self.finish_work().await?;
                Ok(done)
            }
            Err(error) => {
                self.finish().await;
                Err(error)
            }
        }
    }

    /// Releases after work that succeeded. The caller must learn if a lock was lost before, because another holder may
    /// have worked at the same time.
    pub(crate) async fn finish_work(self) -> Result<(), Error> {
        if self.is_lost() {
            let error = lost_by_work(&self.lost());
            return Err(error.and_may_be_held(&self.finish().await.iter().collect::<Vec<_>>()));
        }
        let (mut lost, mut left) = (Vec::new(), Vec::new());
        for (key, released) in outcomes(self.releases()).await {
            match released {
                Ok(Released::Lost) => lost.push(key),
                Ok(Released::Released { .. }) => {}
                Ok(Released::WithoutData(_) | Released::AlreadyGone) => left.extend(not_released(&key, None)),
                Err(error) => left.extend(not_released(&key, Some(error))),
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let error = lost_by_work(&lost.iter().collect::<Vec<_>>());
        Err(error.and_may_be_held(&left.iter().collect::<Vec<_>>()))
    }

    /// Releases after work that was stopped because a lease ended.
    pub(crate) async fn cut_short(self) -> Error {
        let keys: Vec<LockKey> = self.keys().cloned().collect();
        let named: Vec<&LockKey> = keys.iter().collect();
        tracing::warn!(
            key = %named[0], token = self.first.holding.token, locks = keys.len(),
            "a lease ended while the work ran: the work was stopped"
        );
        report::cut_short(&self.engine, named[0]);
        if self.is_lost() {
            let error = self.lost_error();
            return error.and_may_be_held(&self.finish().await.iter().collect::<Vec<_>>());
        }
        let (mut all_released, mut left) = (true, Vec::new());
        for (key, released) in outcomes(self.releases()).await {
            if !matches!(released, Ok(Released::Released { .. })) {
                all_released = false;
                left.extend(not_released(&key, released.err()));
            }
        }
        cut_short(&named, all_released).and_may_be_held(&left.iter().collect::<Vec<_>>())
    }

    /// Releases the locks after the work, unless they are given back already. A failure is only logged, because the work has
    /// ended and the leases free the locks. Returns those that may still be held.
    pub(crate) async fn finish(mut self) -> Vec<LockKey> {
        self.give_back().await;
        self.abandon();
        self.left.unwrap_or_default()
    }

    /// Gives the other locks back when one of them is lost, and reports that one.
    pub(super) async fn unless_lost(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        if !self.is_lost() {
            return done;
        }
        let error = self.lost_error();
        Err(error.and_may_be_held(&self.give_back().await))
    }

    /// Renews a grant before anybody works with it. It is used for a grant that was found late, when half of its lease
    /// had passed already. A call that fails releases the locks if it can. A call that lost one meanwhile never
    /// held it for its caller, who has nothing to stop and may call again.
    pub(crate) async fn renewed_or_released(mut self) -> Result<Self, Error> {
        let Err(error) = self.checkpoint().await else { return Ok(self) };
        let keys: Vec<LockKey> = self.keys().cloned().collect();
        let left = self.finish().await;
        Err(may_hold(&keys.iter().collect::<Vec<_>>(), error).and_holds_only(&left.iter().collect::<Vec<_>>()))
    }

    /// Releases those that are not known to be lost, and ends the guard. A failure is logged. Does it once, and again
    /// where the future was dropped. Returns those that may still be held.
    pub(super) async fn give_back(&mut self) -> Vec<&LockKey> {
        self.give_back_within(self.budget.clone()).await
    }

    pub(super) async fn give_back_within(&mut self, budget: Option<Budget>) -> Vec<&LockKey> {
        if self.left.is_none() {
            self.left = Some(self.not_given_back(budget).await);
        }
        self.left.iter().flatten().collect()
    }

    async fn not_given_back(&self, budget: Option<Budget>) -> Vec<LockKey> {
        let rest: Vec<&Hold> = self.holds().filter(|hold| !hold.is_lost()).collect();
        // From the first request on, none of them is ours.
        rest.iter().for_each(|hold| hold.abandon());
        let releases = rest.into_iter().map(|hold| {
            let release = Release::of_hold(self.engine.clone(), hold.for_release(), budget.clone());
            let deadline = release.deadline();
            Box::pin(async move {
                match release.outcome_by(deadline).await {
                    Ok(Released::Released { .. }) => None,
                    other => not_released(hold.key(), other.err()),
                }
            }) as Task<'_, _>
        });
        at_once(releases).await.into_iter().flatten().collect()
    }
}

/// The error of an acquire whose grants may stay behind, although nobody will work with them.
pub(super) fn may_hold(keys: &[&LockKey], cause: Error) -> Error {
    let cause: BoxError = Box::new(cause);
    Error::of_failure(Failure::OutcomeUnknown, Operation::Acquire, keys, cause)
}

/// Logs that the lock was not released, or was no longer ours. The caller gets the work's own outcome instead. Returns its key if
/// it may still be held.
pub(super) fn not_released(key: &LockKey, error: Option<Error>) -> Option<LockKey> {
    let Some(error) = error else {
        tracing::warn!(%key, "the lock was no longer ours when it was released");
        return None;
    };
    tracing::warn!(%key, %error, "the lock was not released; its lease frees it");
    error.may_be_held().contains(key).then(|| key.clone())
}

fn lost_by_work(keys: &[&LockKey]) -> Error {
    let message = format!(
        "{} {} lost before the work finished: the work succeeded, but another holder may have worked \
         at the same time; check what the work wrote",
        Locks(keys),
        if keys.len() > 1 { "were" } else { "was" }
    );
    Error::new(ErrorKind::Lost, message)
}

fn cut_short(keys: &[&LockKey], released: bool) -> Error {
    let now = match (keys.len() > 1, released) {
        (false, true) => "the lock was released",
        (false, false) => "the lock was not released",
        (true, true) => "they were released",
        (true, false) => "not all were released",
    };
    let message = format!(
        "the lease of {} ended while the work ran, so the work was stopped; {now}; check what the work left behind, \
         and give it more time or checkpoints",
        Locks(keys)
    );
    Error::new(ErrorKind::CutShort, message)
}
