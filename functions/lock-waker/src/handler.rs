//! Wakes whoever is next in line for each lock that a batch of the table's stream shows as released.

use crate::change::{Next, Reader};
use futures_util::{StreamExt, stream};
use lambda_lock::Budget;
use lambda_lock_functions::{Config, ConfigError, Environment, Event, Failure, Fields, Waker, WithoutItem, optional};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use std::time::Duration;

/// How many locks are looked after at once. One after the other, the last of a large batch would wait for all the others.
const AT_ONCE: usize = 8;
/// The part of the invocation in which it ends, whatever AWS does. If Lambda ended it, the batch would come again.
const TO_END: Duration = Duration::from_secs(1);

/// What all invocations of a process share.
#[derive(Debug)]
pub(crate) struct Deps {
    reader: Reader,
    waker: Waker,
}

impl Deps {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let prefix = optional(environment, "LOCK_KEY_PREFIX")?.unwrap_or_default();
        // The keys in the stream are whole, so a client that puts the prefix before them is no help.
        if !prefix.is_empty() {
            let checked = config.locks()?.prefixed(&prefix);
            checked.map_err(|error| ConfigError::new(format!("LOCK_KEY_PREFIX cannot be used: {error}")))?;
        }
        Ok(Self { reader: Reader::new(config, prefix), waker: Waker::new(config, environment)? })
    }
}

/// Succeeds with every batch: a record that fails again and again would hold up all that come behind it, and somebody who
/// was not woken looks by itself. Answers for how many locks somebody was to be woken.
pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let budget = Budget::from(&event.context);
    let records = records(Fields::of_event(&event.payload)?)?;
    let next: Vec<Next> = records.iter().filter_map(|record| deps.next(record)).collect();
    let locks = next.len();
    deps.wake(next, &budget).await;
    Ok(json!({ "locks": locks }))
}

fn records(mut event: Fields) -> Result<Vec<Value>, Failure> {
    match event.take("Records") {
        Some(Value::Array(records)) => Ok(records),
        _ => Err(event.malformed("Records", "send an event of a DynamoDB stream, with a list of its records")),
    }
}

impl Deps {
    /// Whom to wake, if anybody sleeps. A record that cannot be read is logged.
    fn next(&self, record: &Value) -> Option<Next> {
        self.reader.next(record).unwrap_or_else(|failure| {
            failure.log(None);
            None
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the function holds no lock, and has to end before its deadline")]
    async fn wake(&self, next: Vec<Next>, budget: &Budget) {
        let wake = async |Next { lock, tickets, left }: Next| {
            let in_line = tickets.filter(|ticket| !left.contains(ticket));
            // After a release by lock-task the item of the next one is gone.
            self.waker.wake_next(&lock, in_line, WithoutItem::Woken).await;
        };
        let all = stream::iter(next).for_each_concurrent(AT_ONCE, wake);
        let time = budget.remaining().unwrap_or(Duration::MAX).saturating_sub(TO_END);
        if tokio::time::timeout(time, all).await.is_err() {
            tracing::warn!("the time was over before all were woken; who sleeps looks when its state times out");
        }
    }
}
