//! Which action, and how much time it has.

use crate::{acquire, release, renew};
use lambda_lock::{Budget, LockClient, LockKey};
use lambda_lock_functions::{Config, ConfigError, Event, Failure, Fields};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::Value;
use std::time::Duration;

/// What is kept of the invocation for answering: whoever is killed at the deadline answers nothing.
const TO_ANSWER: Duration = Duration::from_millis(500);
/// The time of an invocation whose deadline nobody knows: that of three requests.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(3);

/// What outlives an invocation.
pub(crate) struct Deps {
    pub(crate) locks: LockClient,
    /// Whether lock keys have a sort key.
    pub(crate) sort_key: bool,
}

impl Deps {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self { locks: config.locks()?, sort_key: config.has_sort_key() })
    }
}

pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let fields = Fields::of_event(&event.payload)?;
    let key = key(&fields);
    let done = run(fields, &Time::of(&event.context), deps).await;
    done.map_err(|failure| match &key {
        Some(key) => failure.of_lock(key),
        None => failure,
    })
}

async fn run(mut fields: Fields, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    match fields.text("action")?.as_str() {
        "acquire" => acquire::run(acquire::Request::read(fields, deps.sort_key)?, time, deps).await,
        "renew" => renew::run(renew::Request::read(fields, deps.sort_key)?, time, deps).await,
        "release" => release::run(release::Request::read(fields, deps.sort_key)?, time, deps).await,
        _ => Err(fields.malformed("action", "give acquire, renew or release")),
    }
}

/// Which lock a request is about, also one that is malformed elsewhere: the log line of its failure names it.
fn key(fields: &Fields) -> Option<LockKey> {
    let text = |name| fields.peek(&["lock", name]).or_else(|| fields.peek(&[name])).map(str::to_owned);
    text("key").map(|key| LockKey::new(key, text("sortKey")))
}

/// How long this invocation can ask DynamoDB.
#[derive(Debug)]
pub(crate) struct Time {
    left: Option<Duration>,
}

impl Time {
    fn of(context: &Context) -> Self {
        Self { left: Budget::from(context).remaining().map(|remaining| remaining.saturating_sub(TO_ANSWER)) }
    }

    /// A budget to wait for at most this long, for a lock whose lease may outlive the invocation:
    /// whoever gets the lock works elsewhere, so the lease is its own grace.
    pub(crate) fn waiting(&self, wait: Duration, lease: Duration) -> Budget {
        let left = self.left.unwrap_or(wait.saturating_add(WITHOUT_DEADLINE));
        Budget::lasting(left).reserve(left.saturating_sub(wait)).grace(lease)
    }
}
