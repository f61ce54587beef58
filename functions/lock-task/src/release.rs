//! `release`: give a lock back.

use crate::handler::{Deps, Time};
use crate::lock::LockJson;
use lambda_lock::ReleaseOutcome;
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"action":"release","lock":{…}}`
#[derive(Debug)]
pub(crate) struct Request {
    lock: LockJson,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, with_sort_key: bool) -> Result<Self, Failure> {
        let request = Self { lock: LockJson::read(&mut fields, with_sort_key)? };
        fields.nothing_else()?;
        Ok(request)
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let budget = time.waiting(Duration::ZERO, Duration::ZERO);
    // A retried task whose first answer was lost had acquired again: that grant goes too.
    let release = deps.locks.release(request.lock.token).or_later_grant_of_owner().within(&budget);
    match release.await? {
        ReleaseOutcome::Released => Ok(json!({ "released": true })),
        ReleaseOutcome::AlreadyGone => Ok(json!({ "released": false, "reason": "gone" })),
    }
}
