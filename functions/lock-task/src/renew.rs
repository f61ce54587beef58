//! `renew`: renews a lock.

use crate::deps::Deps;
use crate::lock::{LockJson, Locks, lease, saved_set};
use crate::refusal::of_field;
use crate::time::Time;
use lambda_lock::MAX_LEASE;
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"action":"renew","lock":{…},"leaseSeconds":…}`
#[derive(Debug)]
pub(crate) struct Request {
    lock: Locks,
    lease: Duration,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let request =
            Self { lock: Locks::read(&mut fields, deps)?, lease: lease(&mut fields, deps.trust.longest_lease)? };
        fields.nothing_else()?;
        Ok(request)
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let Request { lock, lease } = request;
    // Another copy of the lock may have written a longer lease, which is kept. So the budget allows
    // the longest lease.
    let budget = time.waiting(Duration::ZERO, MAX_LEASE);
    let renewed = match lock {
        Locks::One(LockJson { token, data }) => {
            let lock = deps.locks.resume(token).lease(lease).within(&budget).await;
            let lock = lock.map_err(|error| of_field(error, "lock"))?;
            Locks::One(LockJson { token: lock.save(), data })
        }
        Locks::Set(locks) => {
            let set = deps.locks.resume_all(saved_set(locks)).lease(lease).within(&budget).await;
            let set = set.map_err(|error| of_field(error, "lock.locks"))?;
            Locks::of_set(&set.save())
        }
    };
    Ok(json!({ "lock": renewed.json(deps) }))
}
