//! Several held locks as a resource: the crate's guard while they are held, their saved form afterwards.

use crate::bindings::exports::lambda_lock::lock::locks::GuestLockSet;
use crate::bindings::exports::lambda_lock::lock::types;
use crate::convert::millis;
use crate::error::lost;
use crate::fence::written;
use crate::run::run;
use lambda_lock::{LockChain, LockClient, ReleaseAll, ReleaseAllOutcome, SavedLock, SavedLockSet};
use std::cell::RefCell;
use std::time::Duration;

type Result<T> = std::result::Result<T, types::Error>;

/// Locks that were granted to the host by one call.
pub(crate) struct LockSet {
    client: LockClient,
    /// The one token of locks that were acquired together.
    token: Option<u64>,
    state: RefCell<State>,
}

enum State {
    Together(lambda_lock::LockSet),
    InOrder(LockChain),
    /// Released or handed over. The saved locks are enough to release them again.
    Over(Vec<SavedLock>),
}

/// Does the same with both kinds of guards, which are of one form, but not of one type.
macro_rules! held_or {
    ($state:expr, $locks:ident => $held:expr, $saved:ident => $over:expr) => {
        match $state {
            State::Together($locks) => $held,
            State::InOrder($locks) => $held,
            State::Over($saved) => $over,
        }
    };
}

impl LockSet {
    pub(crate) fn together(client: LockClient, locks: lambda_lock::LockSet) -> Self {
        Self { client, token: Some(locks.fencing_token()), state: RefCell::new(State::Together(locks)) }
    }

    /// Resumed locks are of this kind too, so their token is the caller's to know.
    pub(crate) fn in_order(client: LockClient, locks: LockChain, token: Option<u64>) -> Self {
        Self { client, token, state: RefCell::new(State::InOrder(locks)) }
    }

    fn as_saved(&self) -> Vec<SavedLock> {
        held_or!(&*self.state.borrow(), locks => locks.to_saved().locks().to_vec(), saved => saved.clone())
    }

    /// Ends the guard here without a request.
    fn end(&self) -> (State, Vec<SavedLock>) {
        let saved = self.as_saved();
        (self.state.replace(State::Over(saved.clone())), saved)
    }
}

impl GuestLockSet for LockSet {
    fn keys(&self) -> Vec<types::LockKey> {
        self.as_saved().iter().map(|saved| (&saved.key()).into()).collect()
    }

    fn fencing_token(&self) -> Option<u64> {
        self.token
    }

    fn remaining(&self) -> u64 {
        held_or!(&*self.state.borrow(), locks => millis(locks.remaining()), _saved => 0)
    }

    fn ensure_remaining(&self, step: u64) -> Result<()> {
        let step = Duration::from_millis(step);
        held_or!(&*self.state.borrow(), locks => Ok(locks.ensure_remaining(step)?), saved => Err(lost(saved)))
    }

    fn renew(&self) -> Result<()> {
        held_or!(&mut *self.state.borrow_mut(), locks => Ok(run(Box::pin(locks.checkpoint()))?), saved => Err(lost(saved)))
    }

    fn condition_checks(&self) -> Result<Vec<types::ConditionCheck>> {
        let checks =
            held_or!(&*self.state.borrow(), locks => locks.condition_checks()?, saved => return Err(lost(saved)));
        checks.into_iter().map(written).collect()
    }

    fn to_saved(&self) -> Vec<types::SavedLock> {
        self.as_saved().iter().map(Into::into).collect()
    }

    fn save(&self) -> Vec<types::SavedLock> {
        let (state, saved) = self.end();
        // Otherwise the guard would warn that the locks were not released.
        held_or!(state, locks => drop(locks.save()), _saved => ());
        saved.iter().map(Into::into).collect()
    }

    fn release(&self) -> Result<Vec<types::LockKey>> {
        let (state, saved) = self.end();
        gone(held_or!(state, locks => locks.release(), _saved => {
            self.client.release_all(SavedLockSet::from_locks(saved))
        }))
    }
}

/// The keys whose rows no longer have the grant that was released.
pub(crate) fn gone(release: ReleaseAll) -> Result<Vec<types::LockKey>> {
    Ok(match run(release.into_future())? {
        ReleaseAllOutcome::Released => Vec::new(),
        ReleaseAllOutcome::AlreadyGone(keys) => keys.iter().map(Into::into).collect(),
    })
}
