//! Several held locks as a resource: the crate's guard while they are held, their saved form afterwards.

use crate::bindings::exports::lambda_lock::lock::locks::GuestLockSet;
use crate::bindings::exports::lambda_lock::lock::types;
use crate::convert::millis;
use crate::error::lost;
use crate::fence::written;
use crate::run::run;
use lambda_lock::{LockClient, ReleaseAll, ReleaseAllOutcome, SavedLock, SavedLockSet};
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
    Held(lambda_lock::LockSet),
    /// Released or handed over. The saved locks are enough to release them again.
    Over(Vec<SavedLock>),
}

impl LockSet {
    pub(crate) fn new(client: LockClient, locks: lambda_lock::LockSet) -> Self {
        Self { client, token: locks.fencing_token(), state: RefCell::new(State::Held(locks)) }
    }

    fn as_saved(&self) -> Vec<SavedLock> {
        match &*self.state.borrow() {
            State::Held(locks) => locks.to_saved().locks().to_vec(),
            State::Over(saved) => saved.clone(),
        }
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
        match &*self.state.borrow() {
            State::Held(locks) => millis(locks.remaining()),
            State::Over(_) => 0,
        }
    }

    fn ensure_remaining(&self, step: u64) -> Result<()> {
        let step = Duration::from_millis(step);
        match &*self.state.borrow() {
            State::Held(locks) => Ok(locks.ensure_remaining(step)?),
            State::Over(saved) => Err(lost(saved)),
        }
    }

    fn renew(&self) -> Result<()> {
        match &mut *self.state.borrow_mut() {
            State::Held(locks) => Ok(run(Box::pin(locks.checkpoint()))?),
            State::Over(saved) => Err(lost(saved)),
        }
    }

    fn condition_checks(&self) -> Result<Vec<types::ConditionCheck>> {
        match &*self.state.borrow() {
            State::Held(locks) => locks.condition_checks()?.into_iter().map(written).collect(),
            State::Over(saved) => Err(lost(saved)),
        }
    }

    fn to_saved(&self) -> Vec<types::SavedLock> {
        self.as_saved().iter().map(Into::into).collect()
    }

    fn save(&self) -> Vec<types::SavedLock> {
        let (state, saved) = self.end();
        if let State::Held(locks) = state {
            // Otherwise the guard would warn that the locks were not released.
            let _ = locks.save();
        }
        saved.iter().map(Into::into).collect()
    }

    fn release(&self) -> Result<Vec<types::LockKey>> {
        let (state, saved) = self.end();
        gone(match state {
            State::Held(locks) => locks.release(),
            State::Over(_) => self.client.release_all(SavedLockSet::from_locks(saved)),
        })
    }
}

/// The keys whose rows no longer have the grant that was released.
pub(crate) fn gone(release: ReleaseAll) -> Result<Vec<types::LockKey>> {
    Ok(match run(release.into_future())? {
        ReleaseAllOutcome::Released => Vec::new(),
        ReleaseAllOutcome::AlreadyGone(keys) => keys.iter().map(Into::into).collect(),
    })
}
