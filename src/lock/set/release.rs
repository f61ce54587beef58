//! Release of several locks, by their holder or after its work.

use super::LockSet;
use super::resume::SavedLockSet;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use crate::lock::awaited::awaited;
use crate::lock::release::{Release, Sleeper, outcomes};
use lambda_lock_protocol::{LockKey, Operation, Released, SavedLock};
use std::fmt;
use std::sync::Arc;

/// What a release of several locks found. There is no third case, so a `match` needs no `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseAllOutcome {
    /// All of them are free.
    Released,
    /// The rows of these locks no longer have this grant. The others are free.
    AlreadyGone(Vec<LockKey>),
}

/// A release of several locks before it is awaited. Await it to get a [`ReleaseAllOutcome`].
///
/// # Errors
/// Returns the errors of [`Release`]. [`Error::may_be_held`] has each lock whose release was refused
/// or is of unknown outcome. Their leases free them.
///
/// # Requests and IAM actions
/// It sends the requests of [`Release`] for each lock, up to eight at once: `dynamodb:UpdateItem`.
/// The time of the release is that of all of them together.
///
/// # Cancel safety
/// If the future is dropped, each lock may or may not be released, and its lease frees it.
#[must_use = "a release does nothing until it is awaited, and until then the locks stay taken"]
pub struct ReleaseAll {
    releases: Vec<(LockKey, Release)>,
    checked: Result<(), Error>,
}

impl LockSet {
    /// Releases all of the locks. This call ends the guard, whatever the responses are.
    pub fn release(self) -> ReleaseAll {
        ReleaseAll { releases: self.held.releases(), checked: Ok(()) }
    }
}

impl ReleaseAll {
    pub(crate) fn of_saved(engine: &Arc<Engine>, saved: &SavedLockSet) -> Self {
        let release = |saved: &SavedLock| (saved.key(), Release::of_saved(engine, saved.clone()));
        Self { releases: saved.locks().iter().map(release).collect(), checked: saved.check_each(engine) }
    }

    /// Sets the time that the release may take. Default: the budget of the locks, or else three request timeouts.
    pub fn within(self, budget: &Budget) -> Self {
        self.with_each(|release| release.within(budget))
    }

    /// Also releases later grants of the same owner, as [`Release::or_later_grant_of_owner`] does.
    pub fn or_later_grant_of_owner(self) -> Self {
        self.with_each(Release::or_later_grant_of_owner)
    }

    fn with_each(self, change: impl Fn(Release) -> Release) -> Self {
        let releases = self.releases.into_iter().map(|(key, release)| (key, change(release))).collect();
        Self { releases, checked: self.checked }
    }

    /// Releases the locks, and tells whom to wake, as [`Release::with_sleeper`](crate::Release::with_sleeper) does of each lock. It
    /// tells so also where the release of another lock failed.
    pub async fn with_sleepers(self) -> (Result<ReleaseAllOutcome, Error>, Vec<Sleeper>) {
        let mut sleepers = Vec::new();
        let released = self.with_each(Release::telling_sleeper).release(&mut sleepers).await;
        (released, sleepers)
    }

    async fn release(mut self, sleepers: &mut Vec<Sleeper>) -> Result<ReleaseAllOutcome, Error> {
        std::mem::replace(&mut self.checked, Ok(()))?;
        let mut gone = Vec::new();
        let mut failed = Vec::new();
        for (key, released) in outcomes(self.releases).await {
            match released {
                Ok(Released::Released { to_wake }) => {
                    sleepers.extend(to_wake.map(|tickets| Sleeper::new(key, tickets)));
                }
                Ok(_) => gone.push(key),
                Err(error) => failed.push((key, error)),
            }
        }
        match Error::of_some_locks(Operation::Release, failed) {
            Some(error) => Err(error),
            None if gone.is_empty() => Ok(ReleaseAllOutcome::Released),
            None => Ok(ReleaseAllOutcome::AlreadyGone(gone)),
        }
    }
}

awaited!(ReleaseAll => Result<ReleaseAllOutcome, Error>, |release| async move { release.release(&mut Vec::new()).await });

impl fmt::Debug for ReleaseAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.releases.iter().map(|(key, _)| key).collect();
        f.debug_struct("ReleaseAll").field("keys", &keys).finish_non_exhaustive()
    }
}
