//! Reads the action of a request and runs it.

use crate::deps::Deps;
use crate::time::Time;
use crate::{acquire, peek, release, renew, wait};
use lambda_lock::{LockKey, LockSet};
use lambda_lock_functions::{Event, Failure, Fields, count_keys};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use std::time::Duration;

pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let fields = Fields::of_event(&event.payload)?;
    let keys = keys(&fields);
    let deps = deps.of_tenant(&event.context)?;
    let time = Time::of(&event.context);
    let budget = time.waiting(Duration::ZERO, Duration::ZERO);
    if keys.len() > 1 {
        count_keys(keys.iter().map(|key| deps.row(key)));
    }
    let changes = matches!(fields.peek(&["action"]), Some("acquire" | "renew" | "release"));
    let done = run(fields, &time, &deps).await;
    if changes
        && let Err(failure) = &done
        && may_have_freed(failure, &keys)
    {
        deps.waker.wake_freed(&deps.locks, &keys, budget.remaining()).await;
    }
    done.map_err(|failure| match &*keys {
        [] => failure,
        [key] => failure.of_row(&deps.row(key), key),
        keys => failure.of_rows(&keys.iter().map(|key| (deps.row(key), key.clone())).collect::<Vec<_>>()),
    })
}

/// Whether a call that failed so may have given back what it held: a renewal the rest of its set, an acquire a grant whose
/// response was lost.
fn may_have_freed(failure: &Failure, keys: &[LockKey]) -> bool {
    match failure.error_type() {
        "LockUnknown" | "InvalidRecord" => true,
        "LockLost" => keys.len() > 1,
        _ => false,
    }
}

/// Reads the request, and runs what it asks for.
async fn run(mut fields: Fields, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    match fields.text("action")?.as_str() {
        "acquire" => acquire::run(acquire::Request::read(fields, deps)?, time, deps).await,
        "renew" => renew::run(renew::Request::read(fields, deps)?, time, deps).await,
        "release" => release::run(release::Request::read(fields, deps)?, time, deps).await,
        "wait" => wait::run(wait::Request::read(fields, deps)?, deps).await,
        "peek" => peek::run(peek::Request::read(fields, deps)?, deps).await,
        _ => Err(fields.malformed("action", "give acquire, wait, renew, release or peek")),
    }
}

/// Returns the keys of the locks, even if another field of the request is malformed. The log line of a failure
/// contains the first one.
fn keys(fields: &Fields) -> Vec<LockKey> {
    let text = |name| fields.peek(&["lock", name]).or_else(|| fields.peek(&[name])).map(str::to_owned);
    if let Some(key) = text("key") {
        return vec![LockKey::new(key, text("sortKey"))];
    }
    let locks = || fields.peek_value("lock")?.get("locks");
    let list = locks().or_else(|| fields.peek_value("keys")).and_then(Value::as_array);
    let key = |value: &Value| {
        let text = |name| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(LockKey::new(value.as_str().map(str::to_owned).or_else(|| text("key"))?, text("sortKey")))
    };
    list.into_iter().flatten().filter_map(key).take(LockSet::MAX).collect()
}
