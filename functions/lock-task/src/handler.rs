//! Which action, and how much time it has.

use crate::{acquire, release, renew};
use lambda_lock::{Budget, LockClient};
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
    let mut fields = Fields::of_event(&event.payload)?;
    let time = Time::of(&event.context);
    match fields.text("action")?.as_str() {
        "acquire" => {
            let request = acquire::Request::read(fields, deps.sort_key)?;
            let key = request.key.clone();
            acquire::run(request, &time, deps).await.map_err(|failure| failure.of_lock(&key))
        }
        "renew" => {
            let request = renew::Request::read(fields, deps.sort_key)?;
            let key = request.lock.token.key();
            renew::run(request, &time, deps).await.map_err(|failure| failure.of_lock(&key))
        }
        "release" => {
            let request = release::Request::read(fields, deps.sort_key)?;
            let key = request.lock.token.key();
            release::run(request, &time, deps).await.map_err(|failure| failure.of_lock(&key))
        }
        _ => Err(fields.malformed("action", "give acquire, renew or release")),
    }
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
