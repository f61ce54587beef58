//! A held lock as a resource: the crate's guard while the lock is held, its saved form afterwards.

use crate::bindings::exports::lambda_lock::lock::locks::{GuestLock, ReleaseOptions, RenewOptions};
use crate::bindings::exports::lambda_lock::lock::types;
use crate::convert::{epoch_millis, millis};
use crate::error::lost;
use crate::fence::written;
use crate::options::{data_change, outcome, releasing};
use crate::run::run;
use lambda_lock::{LockClient, SavedLock};
use std::cell::RefCell;
use std::time::Duration;

type Result<T> = std::result::Result<T, types::Error>;

/// A lock that was granted to the host.
pub(crate) struct Lock {
    client: LockClient,
    data: Option<Vec<u8>>,
    state: RefCell<State>,
}

enum State {
    Held(lambda_lock::Lock),
    /// Released or handed over. The saved lock is enough to release it again.
    Over(SavedLock),
}

impl Lock {
    pub(crate) fn held(client: LockClient, lock: lambda_lock::Lock) -> Self {
        Self { client, data: lock.data().map(<[u8]>::to_vec), state: RefCell::new(State::Held(lock)) }
    }

    fn as_saved(&self) -> SavedLock {
        match &*self.state.borrow() {
            State::Held(lock) => lock.to_saved(),
            State::Over(saved) => saved.clone(),
        }
    }

    /// Ends the guard here without a request.
    fn end(&self) -> (State, SavedLock) {
        let saved = self.as_saved();
        (self.state.replace(State::Over(saved.clone())), saved)
    }
}

impl GuestLock for Lock {
    fn key(&self) -> types::LockKey {
        (&self.as_saved().key()).into()
    }

    fn owner(&self) -> String {
        self.as_saved().owner().to_owned()
    }

    fn fencing_token(&self) -> u64 {
        self.as_saved().fencing_token()
    }

    fn data(&self) -> Option<Vec<u8>> {
        self.data.clone()
    }

    fn remaining(&self) -> u64 {
        match &*self.state.borrow() {
            State::Held(lock) => millis(lock.remaining()),
            State::Over(_) => 0,
        }
    }

    fn lease_ends_at(&self) -> u64 {
        self.as_saved().lease_ends_at().map(epoch_millis).unwrap_or_default()
    }

    fn ensure_remaining(&self, step: u64) -> Result<()> {
        match &*self.state.borrow() {
            State::Held(lock) => Ok(lock.ensure_remaining(Duration::from_millis(step))?),
            State::Over(saved) => Err(lost(std::slice::from_ref(saved))),
        }
    }

    fn renew(&self, options: RenewOptions) -> Result<()> {
        let RenewOptions { lease, data } = options;
        let mut state = self.state.borrow_mut();
        let lock = match &mut *state {
            State::Held(lock) => lock,
            State::Over(saved) => return Err(lost(std::slice::from_ref(saved))),
        };
        let mut renew = lock.renew();
        if let Some(lease) = lease {
            renew = renew.lease(Duration::from_millis(lease));
        }
        Ok(run(renew.data(data_change(data)).into_future())?)
    }

    fn to_saved(&self) -> types::SavedLock {
        (&self.as_saved()).into()
    }

    fn save(&self) -> types::SavedLock {
        let (state, saved) = self.end();
        if let State::Held(lock) = state {
            // Otherwise the guard would warn that the lock was not released.
            let _ = lock.save();
        }
        (&saved).into()
    }

    fn condition_check(&self) -> Result<types::ConditionCheck> {
        match &*self.state.borrow() {
            State::Held(lock) => written(lock.condition_check()?),
            State::Over(saved) => Err(lost(std::slice::from_ref(saved))),
        }
    }

    fn release(&self, options: ReleaseOptions) -> Result<types::ReleaseOutcome> {
        let release = match self.end() {
            (State::Held(lock), _) => lock.release(),
            (State::Over(_), saved) => self.client.release(saved),
        };
        Ok(outcome(run(releasing(release, options).into_future())?))
    }
}
