//! `acquire`: get a lock, or say who has it.

use crate::handler::{Deps, Time};
use crate::lock::{LockJson, epoch_millis, lease, sort_key};
use lambda_lock::protocol::{LONGEST_KEY, LONGEST_NAME};
use lambda_lock::{Held, LockKey, Observation};
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Value, json};
use std::time::Duration;

/// `{"action":"acquire","key":…,"owner":…,"leaseSeconds":…}` and what may stand beside it.
#[derive(Debug)]
pub(crate) struct Request {
    key: LockKey,
    owner: String,
    lease: Duration,
    wait: Duration,
    when_held: WhenHeld,
    data: Option<String>,
    execution: Option<String>,
    observation: Option<Observation>,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, with_sort_key: bool) -> Result<Self, Failure> {
        let request = Self {
            key: LockKey::new(fields.name("key", LONGEST_KEY)?, sort_key(&mut fields, with_sort_key)?),
            owner: fields.name("owner", LONGEST_NAME)?,
            lease: lease(&mut fields)?,
            wait: fields.optional_seconds("waitSeconds")?.unwrap_or_default(),
            when_held: WhenHeld::read(&mut fields)?,
            data: fields.optional_text("data")?,
            execution: fields.optional_name("execution", LONGEST_NAME)?,
            observation: observation(&mut fields)?,
        };
        fields.nothing_else()?;
        Ok(request)
    }
}

/// What becomes of a request for a lock that somebody else holds.
#[derive(Debug)]
enum WhenHeld {
    /// `LockHeld`.
    Fail,
    /// An answer, with a time to wait that is no longer than this.
    Report { longest_wait: Option<u64> },
}

impl WhenHeld {
    fn read(fields: &mut Fields) -> Result<Self, Failure> {
        let longest_wait = longest_wait(fields)?;
        match fields.optional_text("whenHeld")?.as_deref() {
            None | Some("fail") if longest_wait.is_some() => {
                Err(fields.malformed("maxRetryAfterSeconds", "it needs whenHeld: report beside it"))
            }
            None | Some("fail") => Ok(Self::Fail),
            Some("report") => Ok(Self::Report { longest_wait }),
            Some(_) => Err(fields.malformed("whenHeld", "give fail or report")),
        }
    }
}

/// In whole seconds, as a `Wait` state takes them.
fn longest_wait(fields: &mut Fields) -> Result<Option<u64>, Failure> {
    match fields.optional_seconds("maxRetryAfterSeconds")?.map(|longest| longest.as_secs()) {
        Some(0) => Err(fields.malformed("maxRetryAfterSeconds", "give at least 1")),
        longest => Ok(longest),
    }
}

/// What an earlier answer saw, and the time since that the caller vouches for. A state machine's
/// first loop has seen nothing yet: it says `null`, and whatever it waited counts nothing.
fn observation(fields: &mut Fields) -> Result<Option<Observation>, Failure> {
    let seen = fields.take("observation");
    if matches!(seen, Some(Value::Null)) {
        return match fields.take("waitedSeconds") {
            None | Some(Value::Null | Value::Number(_)) => Ok(None),
            Some(_) => Err(fields.malformed("waitedSeconds", "give a number of seconds")),
        };
    }
    match (seen, fields.optional_seconds("waitedSeconds")?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(fields.malformed("waitedSeconds", "it needs the observation beside it")),
        (Some(_), None) => Err(fields.malformed("observation", "it needs waitedSeconds beside it")),
        (Some(seen), Some(waited)) => match serde_json::from_value::<Observation>(seen) {
            Ok(seen) => Ok(Some(seen.and_waited(waited))),
            Err(_) => Err(fields.malformed("observation", "give it exactly as it was answered")),
        },
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let Request { key, owner, lease, wait, when_held, data, execution, observation } = request;
    let budget = time.waiting(wait, lease);
    let mut acquire = deps.locks.acquire(key).owner(owner).reclaim_own().lease(lease).within(&budget);
    if let Some(execution) = execution {
        acquire = acquire.workflow(execution);
    }
    if let Some(data) = data {
        acquire = acquire.data(data);
    }
    if let Some(observation) = observation {
        acquire = acquire.observation(observation);
    }
    match acquire.await {
        Ok(lock) => {
            let data = lock.data().map(|data| String::from_utf8_lossy(data).into_owned());
            let lock = LockJson { token: lock.into_token(), data }.json();
            Ok(json!({ "acquired": true, "lock": lock }))
        }
        Err(error) => match (error.held(), when_held) {
            (Some(held), WhenHeld::Report { longest_wait }) => Ok(report(held, longest_wait)),
            _ => Err(error.into()),
        },
    }
}

fn report(held: &Held, longest_wait: Option<u64>) -> Value {
    // A Wait state takes whole seconds, and to wait for less than was asked would be too early.
    let dead_in = u64::try_from(held.retry_after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
    json!({
        "acquired": false,
        "holder": { "owner": held.holder, "leaseEndsAt": held.lease_ends_at.map(epoch_millis) },
        "retryAfterSeconds": longest_wait.map_or(dead_in, |longest| longest.min(dead_in)),
        "observation": held.observation,
    })
}
