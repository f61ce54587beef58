//! What every acquire has, of one lock, of several or of a place: for whom, for how long, and how it ends when it tries once.

use super::held::Guard;
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::deadline::{Deadline, lease_policy};
use crate::engine::error::{Error, Refusal};
use crate::engine::report::Report;
use lambda_lock_protocol::{Invalid, LockKey, Locks};
use std::time::Duration;

/// The result of an acquire that tries once. It was granted or refused, and neither is an error.
#[derive(Debug)]
#[must_use = "a lock may have been granted"]
pub enum Tried<G, R = Refusal> {
    /// What was asked for is ours.
    Granted(G),
    /// Other callers hold it, or it is free and left to those in line. Of several locks or places, these are held.
    Refused(R),
}

impl<G, R> Tried<G, R> {
    /// Returns the guard, if it was granted.
    pub fn granted(self) -> Option<G> {
        match self {
            Tried::Granted(guard) => Some(guard),
            Tried::Refused(_) => None,
        }
    }

    /// Returns why the try was refused, if it was.
    pub fn refused(&self) -> Option<&R> {
        match self {
            Tried::Granted(_) => None,
            Tried::Refused(refusal) => Some(refusal),
        }
    }
}

/// Reports the end of an acquire of what has this key first: the token of the grant, that others hold it, or the failure.
pub(super) fn reported<G: Guard, R>(
    tried: Result<Tried<G, R>, Error>,
    report: Report,
    key: &LockKey,
) -> Result<Tried<G, R>, Error> {
    match &tried {
        Ok(Tried::Granted(guard)) => report.granted("acquire", key, guard.held().first.holding.token),
        Ok(Tried::Refused(_)) => report.ended("acquire", key, "held"),
        Err(error) => report.failed("acquire", key, error),
    }
    tried
}

/// For whom an acquire asks, and for how long.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub(super) owner: Option<String>,
    pub(super) workflow: Option<String>,
    pub(super) lease: Option<Duration>,
    pub(super) budget: Option<Budget>,
    pub(super) reclaim_own: bool,
}

impl Terms {
    /// The owner of this call, on these locks.
    pub(super) fn owner(&self, engine: &Engine, keys: &[&LockKey]) -> Result<String, Error> {
        if self.reclaim_own && self.owner.is_none() {
            return Err(Invalid::new(format!(
                "reclaim_own takes {} from a holder of the same name, and this acquire names nobody: name one holder with \
                 .owner(…)",
                Locks(keys)
            ))
            .into());
        }
        Ok(engine.owner_of_call(self.owner.clone(), self.budget.as_ref()))
    }

    /// How long the call waits for other holders.
    pub(super) fn wait(&self, keys: &[&LockKey]) -> Result<Duration, Error> {
        self.budget.as_ref().and_then(Budget::wait).ok_or_else(|| {
            Invalid::new(format!(
                "acquire waits for {} and needs to know for how long: give a budget with a known end, .within(&budget), or \
                 end with .try_once() to try once",
                Locks(keys)
            ))
            .into()
        })
    }

    /// The time of a call that waits for these locks, or not.
    pub(super) fn deadline(&self, engine: &Engine, keys: &[&LockKey], waits: bool) -> Result<Deadline, Error> {
        let lease = lease_policy(keys, self.lease, self.budget.as_ref())?;
        // The clock is read for the deadline before it is read for the wait, so that a pause in between adds no time.
        let deadline = engine.deadline(lease, self.budget.as_ref());
        let wait = if waits { self.wait(keys)? } else { Duration::ZERO };
        Ok(deadline.waiting(wait, self.budget.as_ref()))
    }
}
