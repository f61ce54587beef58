//! `renew`: renews a lock.

use crate::deps::Deps;
use crate::lock::{LockJson, lease};
use crate::time::Time;
use lambda_lock::protocol::LONGEST_LEASE;
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"action":"renew","lock":{…},"leaseSeconds":…}`
#[derive(Debug)]
pub(crate) struct Request {
    lock: LockJson,
    lease: Duration,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let request = Self { lock: LockJson::read(&mut fields, deps)?, lease: lease(&mut fields)? };
        fields.nothing_else()?;
        Ok(request)
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let Request { lock: LockJson { token, data }, lease } = request;
    // Another copy of the lock may have written a longer lease, which is kept. So the budget allows
    // the longest lease.
    let budget = time.waiting(Duration::ZERO, LONGEST_LEASE);
    let lock = deps.locks.resume(token).lease(lease).within(&budget).await?;
    Ok(json!({ "lock": LockJson { token: lock.save(), data }.json(deps) }))
}
