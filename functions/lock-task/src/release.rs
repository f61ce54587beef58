//! `release`: releases a lock.

use crate::deps::Deps;
use crate::lock::{LockJson, Locks, saved_set};
use crate::refusal::of_field;
use crate::time::Time;
use lambda_lock::{Error, ReleaseAllOutcome, ReleaseOutcome};
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"action":"release","lock":{…}}`, and optionally `reclaim`.
#[derive(Debug)]
pub(crate) struct Request {
    lock: Locks,
    /// Whether a later grant of the same owner also belongs to this caller.
    reclaim: bool,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let request = Self { lock: Locks::read(&mut fields, deps)?, reclaim: fields.flag("reclaim")? };
        fields.nothing_else()?;
        Ok(request)
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let budget = time.waiting(Duration::ZERO, Duration::ZERO);
    let row = request.lock.row();
    // A retried task has acquired the lock again if its first response was lost. `reclaim` releases that grant as well.
    let (is_released, sleepers): (Result<bool, Error>, _) = match request.lock {
        Locks::One(LockJson { token, .. }) => {
            let release = deps.locks.release(token).within(&budget);
            let release = if request.reclaim { release.or_later_grant_of_owner() } else { release };
            let (outcome, sleeper) = release.with_sleeper().await.map_err(|error| of_field(error, "lock"))?;
            (Ok(outcome == ReleaseOutcome::Released), Vec::from_iter(sleeper))
        }
        Locks::Set(locks) => {
            let release = deps.locks.release_all(saved_set(locks)).within(&budget);
            let release = if request.reclaim { release.or_later_grant_of_owner() } else { release };
            let (outcome, sleepers) = release.with_sleepers().await;
            (outcome.map(|outcome| outcome == ReleaseAllOutcome::Released), sleepers)
        }
    };
    deps.waker.wake_all(&sleepers, budget.remaining()).await;
    if is_released.map_err(|error| of_field(error, "lock.locks"))? {
        return Ok(json!({ "released": true }));
    }
    // The caller need not handle it, because its work has ended. Operators learn from it that the lease was too short.
    if let Some(row) = row {
        Failure::lost("the lock was gone when it was released: somebody has acquired it since").of_lock(&row).log(None);
    }
    Ok(json!({ "released": false, "reason": "gone" }))
}
