//! The places that this process gave back last. They are probably still free, so they are tried first. Advice only.

use lambda_lock_protocol::LockKey;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many places of one semaphore are remembered.
const MAX_PLACES: usize = 16;
/// How many semaphores are remembered.
const MAX_NAMES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct GivenBack(Mutex<HashMap<LockKey, Vec<usize>>>);

impl GivenBack {
    /// Remembers a place that is being released.
    pub(crate) fn push(&self, name: &LockKey, place: usize) {
        let mut names = self.names();
        if names.len() >= MAX_NAMES && !names.contains_key(name) {
            names.clear();
        }
        let places = names.entry(name.clone()).or_default();
        places.retain(|known| *known != place);
        if places.len() >= MAX_PLACES {
            places.remove(0);
        }
        places.push(place);
    }

    /// Returns the place that was given back last, once.
    pub(crate) fn pop(&self, name: &LockKey) -> Option<usize> {
        self.names().get_mut(name)?.pop()
    }

    fn names(&self) -> MutexGuard<'_, HashMap<LockKey, Vec<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
