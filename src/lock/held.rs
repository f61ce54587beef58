//! The core of each guard: held locks, one or several, on which the caller relies together. What can be done with them has a
//! file for each operation.

use super::validity::{SharedValidity, Standing};
use super::watch::LockWatch;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::clock::Clock;
use crate::engine::error::Error;
use lambda_lock_protocol::{Holding, Instants, LockKey, SavedLock};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

/// Held locks, one or several. The caller relies on all of them or on none.
pub(crate) struct HeldLocks {
    pub(crate) engine: Arc<Engine>,
    pub(super) budget: Option<Budget>,
    pub(super) first: Hold,
    /// Where one lock is held this is empty, and allocates nothing.
    pub(super) others: Vec<Hold>,
    /// Once one of them was lost and the others were given back: those that may still be held.
    pub(super) left: Option<Vec<LockKey>>,
    /// The commits of unknown outcome came with saved locks. Each may be another transaction.
    pub(super) commits_were_saved: bool,
}

/// One held lock. A guard passes it on to its release. Logs a warning when it is dropped before that.
pub(crate) struct Hold {
    pub(crate) holding: Holding,
    pub(super) validity: SharedValidity,
    pub(super) last_renewal: Option<LastRenewal>,
    /// The payload that the row had when the lock was acquired.
    pub(super) data: Option<Vec<u8>>,
}

/// The last renewal of a lock, which may also have been dropped before it ended.
#[derive(Clone, Copy)]
pub(super) struct LastRenewal {
    /// When it began, or failed.
    pub(super) at: Instants,
    pub(super) has_failed: bool,
}

/// A guard of the caller's.
pub(crate) trait Guard {
    fn held(&self) -> &HeldLocks;
    fn into_held(self) -> HeldLocks;
}

impl HeldLocks {
    pub(crate) fn one(engine: Arc<Engine>, budget: Option<Budget>, first: Hold) -> Self {
        let commits_were_saved = first.holding.pending.is_some();
        Self { engine, budget, first, others: Vec::new(), left: None, commits_were_saved }
    }

    /// `None` where there is no lock.
    pub(super) fn all_of(
        engine: &Arc<Engine>,
        budget: Option<Budget>,
        holds: impl IntoIterator<Item = Hold>,
    ) -> Option<Self> {
        let mut holds = holds.into_iter();
        let (first, others) = (holds.next()?, holds.collect::<Vec<_>>());
        let held = Self { others, ..Self::one(engine.clone(), budget, first) };
        let commits_were_saved = held.holds().any(|hold| hold.holding.pending.is_some());
        Some(Self { commits_were_saved, ..held })
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Hold> {
        iter::once(&self.first).chain(&self.others)
    }

    pub(super) fn holds_mut(&mut self) -> impl Iterator<Item = &mut Hold> {
        iter::once(&mut self.first).chain(&mut self.others)
    }

    pub(super) fn into_holds(self) -> impl Iterator<Item = Hold> {
        iter::once(self.first).chain(self.others)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &LockKey> {
        self.holds().map(Hold::key)
    }

    /// The keys, for an error that names them.
    pub(super) fn named(&self) -> Vec<&LockKey> {
        self.keys().collect()
    }

    /// The rest of the lease that ends first, by the clock that shows less time left. Zero when a lock is lost.
    pub(crate) fn remaining(&self) -> Duration {
        self.watch().remaining()
    }

    /// Refuses a step that a lease cannot cover.
    pub(super) fn ensure_remaining(&self, step: Duration) -> Result<(), Error> {
        covers(step, self.remaining(), || self.named())
    }

    /// For the code that polls the work, because the guard is lent to the work meanwhile.
    pub(crate) fn watch(&self) -> LockWatch {
        LockWatch::new(self.first.validity.clone(), self.others.iter().map(|hold| hold.validity.clone()).collect())
    }

    /// Whether a response showed that one of the locks is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.holds().any(Hold::is_lost)
    }

    /// Those that are lost.
    pub(super) fn lost(&self) -> Vec<&LockKey> {
        self.holds().filter(|hold| hold.is_lost()).map(Hold::key).collect()
    }

    /// Names the locks that are lost.
    pub(super) fn lost_error(&self) -> Error {
        Error::lost(&self.lost())
    }

    /// The error of lost locks names also those of the others that could not be given back.
    pub(super) fn check_not_lost(&self) -> Result<(), Error> {
        if !self.is_lost() {
            return Ok(());
        }
        Err(self.lost_error().and_may_be_held(&self.left.iter().flatten().collect::<Vec<_>>()))
    }

    /// Ends the guard without a release. A lock that is lost stays so.
    pub(crate) fn abandon(&self) {
        self.holds().for_each(Hold::abandon);
    }

    pub(super) fn to_saved(&self) -> impl Iterator<Item = SavedLock> {
        self.holds().map(|hold| SavedLock::of(&hold.holding))
    }
}

impl Hold {
    /// A lock that was granted, or resumed.
    pub(crate) fn granted(clock: &Arc<dyn Clock>, holding: Holding, data: Option<Vec<u8>>) -> Self {
        let validity = SharedValidity::new(clock.clone(), Standing::Valid(holding.validity));
        Self { holding, validity, last_renewal: None, data }
    }

    /// A lock that no guard holds, for its release.
    pub(super) fn of_nobody(clock: &Arc<dyn Clock>, holding: Holding) -> Self {
        let validity = SharedValidity::new(clock.clone(), Standing::Over);
        Self { holding, validity, last_renewal: None, data: None }
    }

    /// The same lock, for a release that ends the hold of the guard too.
    pub(super) fn for_release(&self) -> Self {
        Self { holding: self.holding.clone(), validity: self.validity.clone(), last_renewal: None, data: None }
    }

    pub(super) fn key(&self) -> &LockKey {
        &self.holding.key
    }

    /// Refuses a step that the lease cannot cover.
    pub(super) fn ensure_remaining(&self, step: Duration) -> Result<(), Error> {
        covers(step, self.validity.remaining(), || vec![self.key()])
    }

    /// Whether a response showed that the lock is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.validity.standing() == Standing::Lost
    }

    /// A response showed that the lock is ours, for as long as the holding says.
    pub(super) fn set_valid(&self) {
        self.validity.set(Standing::Valid(self.holding.validity));
    }

    /// A response showed that the lock is lost.
    pub(super) fn lose(&self) {
        self.validity.set(Standing::Lost);
    }

    /// Passes on that a call has found that the lease is over, although the outcome of the call itself is another one.
    pub(super) fn passes_on_its_end(&self, clock: &Arc<dyn Clock>) {
        if self.holding.validity.remaining(clock.now()).is_zero() {
            self.validity.set(Standing::Expired);
        }
    }

    /// Ends the hold without a release. A lock that is lost stays so.
    pub(super) fn abandon(&self) {
        if !self.is_lost() {
            self.validity.set(Standing::Over);
        }
    }
}

fn covers<'a>(step: Duration, remaining: Duration, named: impl FnOnce() -> Vec<&'a LockKey>) -> Result<(), Error> {
    if remaining.is_zero() || remaining < step {
        return Err(Error::out_of_time(&named(), "lease", step, remaining));
    }
    Ok(())
}

impl Drop for Hold {
    fn drop(&mut self) {
        if matches!(self.validity.standing(), Standing::Valid(_) | Standing::Expired) {
            let Holding { key, token, ends_at_ms, .. } = &self.holding;
            tracing::warn!(
                %key, token, taken_until_epoch_millis = ends_at_ms,
                "a lock was dropped without being released: it stays taken until its lease ends"
            );
        }
    }
}
