//! `peek`: tells who holds a lock, and changes nothing.

use crate::deps::Deps;
use crate::lock::key;
use crate::time::epoch_millis;
use lambda_lock::{LockKey, MAX_NAME_BYTES, operator::PeekedLock};
use lambda_lock_functions::{Failure, Fields, beginning};
use serde_json::{Value, json};
use std::time::SystemTime;

/// `{"action":"peek","key":…}`, with `sortKey` where the table has one.
#[derive(Debug)]
pub(crate) struct Request {
    key: LockKey,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let request = Self { key: key(&mut fields, deps)? };
        fields.nothing_else()?;
        Ok(request)
    }
}

pub(crate) async fn run(request: Request, deps: &Deps) -> Result<Value, Failure> {
    let lock = deps.locks.operator().peek(request.key).await?;
    Ok(lock.map_or_else(|| json!({ "state": "free", "holder": null }), |lock| answer(&lock, deps)))
}

/// Without the version: whoever knows it could renew and release the lock.
fn answer(lock: &PeekedLock, deps: &Deps) -> Value {
    let is_dead = deps.max_clock_skew.is_some_and(|skew| lock.is_dead(SystemTime::now(), skew));
    let state = match (lock.released, is_dead) {
        (true, _) => "free",
        (false, true) => "dead",
        (false, false) => "held",
    };
    // What a holder or an operator wrote may name the holder too.
    let shown = |text: &Option<String>| {
        let text = text.as_deref().filter(|_| !deps.trust.hides_owners());
        text.map(|text| beginning(text, MAX_NAME_BYTES).to_owned())
    };
    let mut answer = json!({ "state": state, "holder": null });
    if !lock.released {
        answer["holder"] = json!({
            "owner": beginning(&deps.trust.shown(&lock.holder), MAX_NAME_BYTES),
            "renewedAt": lock.renewed_at.map(epoch_millis),
            "leaseEndsAt": lock.lease_ends_at.map(epoch_millis),
            "leaseSeconds": lock.lease.as_secs_f64(),
            "execution": shown(&lock.workflow),
        });
    }
    answer["fencingToken"] = lock.fencing_token.into();
    answer["breakReason"] = shown(&lock.break_reason).into();
    answer["freezeReason"] = lock.freeze_reason.as_deref().map(|reason| beginning(reason, MAX_NAME_BYTES)).into();
    answer
}
