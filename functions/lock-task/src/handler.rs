//! Reads the action of a request and runs it.

use crate::deps::Deps;
use crate::time::Time;
use crate::{acquire, release, renew};
use lambda_lock::LockKey;
use lambda_lock_functions::{Event, Failure, Fields};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let fields = Fields::of_event(&event.payload)?;
    let key = key(&fields);
    let deps = deps.of_tenant(&event.context)?;
    let done = run(fields, &Time::of(&event.context), &deps).await;
    done.map_err(|failure| match &key {
        Some(key) => failure.of_row(&deps.row(key), key),
        None => failure,
    })
}

async fn run(mut fields: Fields, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    match fields.text("action")?.as_str() {
        "acquire" => acquire::run(acquire::Request::read(fields, deps)?, time, deps).await,
        "renew" => renew::run(renew::Request::read(fields, deps)?, time, deps).await,
        "release" => release::run(release::Request::read(fields, deps)?, time, deps).await,
        _ => Err(fields.malformed("action", "give acquire, renew or release")),
    }
}

/// Returns the lock's key, even if another field of the request is malformed. The log line of a failure
/// contains it.
fn key(fields: &Fields) -> Option<LockKey> {
    let text = |name| fields.peek(&["lock", name]).or_else(|| fields.peek(&[name])).map(str::to_owned);
    text("key").map(|key| LockKey::new(key, text("sortKey")))
}
