//! `release`: releases a lock.

use crate::deps::Deps;
use crate::lock::LockJson;
use crate::time::Time;
use lambda_lock::ReleaseOutcome;
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"action":"release","lock":{…}}`, and optionally `reclaim`.
#[derive(Debug)]
pub(crate) struct Request {
    lock: LockJson,
    /// Whether a later grant of the same owner also belongs to this caller.
    reclaim: bool,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let request = Self { lock: LockJson::read(&mut fields, deps)?, reclaim: fields.flag("reclaim")? };
        fields.nothing_else()?;
        Ok(request)
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let budget = time.waiting(Duration::ZERO, Duration::ZERO);
    let mut release = deps.locks.release(request.lock.token).within(&budget);
    if request.reclaim {
        // A retried task has acquired the lock again if its first response was lost. Releases that
        // grant as well.
        release = release.or_later_grant_of_owner();
    }
    match release.await? {
        ReleaseOutcome::Released => Ok(json!({ "released": true })),
        ReleaseOutcome::AlreadyGone => Ok(json!({ "released": false, "reason": "gone" })),
    }
}
