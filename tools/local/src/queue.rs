//! An SQS queue in this process. It delivers to a function as Lambda's event source mapping does.
//!
//! A batch of messages is one invocation. Messages that the function does not report in
//! `batchItemFailures` are deleted. The others are delivered again after the visibility timeout. If the
//! invocation failed, the whole batch is delivered again. A message that was delivered `maxReceiveCount`
//! times goes to the dead-letter queue instead. The order of messages is not kept.

use crate::authorize::{Grant, Role};
use crate::expansion::ExpandedQueue;
use crate::lambda::{Invocation, Lambda, Outcome};
use anyhow::ensure;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

/// The actions that Lambda needs on the queue from the function's role, by the developer guide.
const ACTIONS: [&str; 3] = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"];

/// A queue and its dead-letter queue. It delivers until it is dropped.
pub struct Queue {
    shared: Arc<Shared>,
    /// Dropping it stops the deliveries.
    _delivering: Vec<oneshot::Sender<()>>,
}

/// The deliveries of a queue so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// The number of delivered messages. Redeliveries count.
    pub messages: u64,
    /// The number of batches.
    pub batches: u64,
    /// The number of batches whose invocation failed.
    pub failed_batches: u64,
}

#[derive(Clone, Debug)]
struct Message {
    id: String,
    body: String,
    sent: Duration,
    received: u32,
    visible: Instant,
}

struct Shared {
    settings: ExpandedQueue,
    lambda: Lambda,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    dead: Vec<Message>,
    deliveries: Deliveries,
}

impl Queue {
    /// Starts to deliver, with at most `pollers` batches at a time. `role` is the function's role.
    ///
    /// # Errors
    /// Returns an error if the role does not permit what Lambda needs on the queue. AWS then rejects the
    /// event source mapping.
    pub fn start(lambda: &Lambda, settings: ExpandedQueue, role: &Role, pollers: usize) -> anyhow::Result<Self> {
        for needed in Self::needs(&settings) {
            ensure!(role.contains(&needed), "the function's role does not have permissions to call {needed}");
        }
        let state = Mutex::default();
        let shared = Arc::new(Shared { settings, lambda: lambda.clone(), state, changed: Notify::new() });
        let pollers = (0..pollers).map(|_| {
            let (delivering, mut stopped) = oneshot::channel::<()>();
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                tokio::select! {
                    () = shared.deliver() => {}
                    // Nothing is sent. This ends when the other half is dropped.
                    _ = &mut stopped => {}
                }
            });
            delivering
        });
        let delivering = pollers.collect();
        Ok(Self { shared, _delivering: delivering })
    }

    /// Returns what Lambda needs on a queue from the function's role.
    pub fn needs(settings: &ExpandedQueue) -> Role {
        let grant = |action: &str| Grant::new(action, &settings.arn);
        ACTIONS.into_iter().map(grant).collect()
    }

    /// Sends a message and returns its id.
    pub fn send(&self, body: impl Into<String>) -> String {
        let id = Uuid::new_v4().to_string();
        let sent = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let message = Message { id: id.clone(), body: body.into(), sent, received: 0, visible: Instant::now() };
        lock(&self.shared.state).messages.push(message);
        self.shared.changed.notify_waiters();
        id
    }

    /// Returns how many messages are neither done nor in the dead-letter queue.
    pub fn len(&self) -> usize {
        lock(&self.shared.state).messages.len()
    }

    /// Returns whether every message is done or in the dead-letter queue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bodies of the messages in the dead-letter queue.
    pub fn dead_letters(&self) -> Vec<String> {
        lock(&self.shared.state).dead.iter().map(|message| message.body.clone()).collect()
    }

    /// Returns the deliveries so far.
    pub fn deliveries(&self) -> Deliveries {
        lock(&self.shared.state).deliveries
    }

    /// Waits until every message is done or in the dead-letter queue.
    pub async fn until_empty(&self) {
        while !self.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The pause between two looks for messages that are visible again.
const PAUSE: Duration = Duration::from_millis(20);

impl Shared {
    async fn deliver(&self) {
        loop {
            let batch = self.receive();
            if batch.is_empty() {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep(PAUSE) => {}
                }
                continue;
            }
            let event = self.event(&batch).to_string();
            let failed = match self.lambda.invoke(&self.settings.function, &event).await {
                Ok(invocation) => failures(&invocation, &batch, self.settings.reports_batch_item_failures),
                // The invocation was throttled, so nothing was invoked.
                Err(_) => None,
            };
            self.settle(&batch, failed);
        }
    }

    /// Takes a batch of visible messages. Moves messages that reached `maxReceiveCount` to the
    /// dead-letter queue.
    fn receive(&self) -> Vec<Message> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let is_over = |message: &Message| message.visible <= now && message.received >= self.settings.max_receive_count;
        let (dead, alive) = std::mem::take(&mut state.messages).into_iter().partition(is_over);
        state.messages = alive;
        state.dead.extend::<Vec<_>>(dead);
        let mut batch = Vec::new();
        let visible = state.messages.iter_mut().filter(|message| message.visible <= now);
        for message in visible.take(self.settings.batch_size) {
            message.received += 1;
            message.visible = now + Duration::from_secs_f64(self.settings.visibility_timeout_seconds);
            batch.push(message.clone());
        }
        batch
    }

    fn event(&self, batch: &[Message]) -> Value {
        let records: Vec<_> = batch.iter().map(|message| record(message, &self.settings.arn)).collect();
        json!({ "Records": records })
    }

    /// Deletes the messages that are done. With `None` no message is done.
    fn settle(&self, batch: &[Message], failed: Option<BTreeSet<String>>) {
        let mut state = lock(&self.state);
        state.deliveries.batches += 1;
        state.deliveries.messages += batch.len() as u64;
        let Some(failed) = failed else {
            state.deliveries.failed_batches += 1;
            return;
        };
        let done: BTreeSet<_> = batch.iter().map(|message| &message.id).filter(|id| !failed.contains(*id)).collect();
        state.messages.retain(|message| !done.contains(&message.id));
    }
}

/// Returns a message in the form of SQS and Lambda.
fn record(message: &Message, arn: &str) -> Value {
    let millis = message.sent.as_millis().to_string();
    json!({
        "messageId": message.id,
        "receiptHandle": Uuid::new_v4().to_string(),
        "body": message.body,
        "attributes": {
            "ApproximateReceiveCount": message.received.to_string(),
            "SentTimestamp": millis,
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": millis,
        },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": crate::lambda::REGION,
    })
}

/// Returns which messages failed. `None` means all of them: Lambda treats a response as a failure of the
/// whole batch if it cannot read it, or if it names a message that is not in the batch.
fn failures(invocation: &Invocation, batch: &[Message], reported: bool) -> Option<BTreeSet<String>> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        #[serde(default)]
        batch_item_failures: Option<Vec<Failure>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Failure {
        item_identifier: String,
    }
    let Outcome::Answer(answer) = &invocation.outcome else { return None };
    if !reported {
        return Some(BTreeSet::new());
    }
    let answer: Option<Answer> = serde_json::from_str(answer).ok()?;
    let failures = answer.unwrap_or_default().batch_item_failures.unwrap_or_default();
    let failed: BTreeSet<_> = failures.into_iter().map(|failure| failure.item_identifier).collect();
    let known = |id: &String| batch.iter().any(|message| message.id == *id);
    failed.iter().all(known).then_some(failed)
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str) -> Message {
        Message { id: id.to_owned(), body: "{}".to_owned(), sent: Duration::ZERO, received: 1, visible: Instant::now() }
    }

    fn ended(outcome: Outcome) -> Invocation {
        Invocation {
            request_id: String::new(),
            outcome,
            logs: String::new(),
            environment: 1,
            cold_start: false,
            duration: Duration::ZERO,
            init: None,
            first_answer: None,
            max_rss_kb: None,
        }
    }

    fn failed(answer: &str, reported: bool) -> Option<Vec<String>> {
        let batch = [message("a"), message("b")];
        let failed = failures(&ended(Outcome::Answer(answer.to_owned())), &batch, reported)?;
        Some(failed.into_iter().collect())
    }

    #[test]
    fn only_reported_messages_are_delivered_again() {
        assert_eq!(failed(r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#, true).unwrap(), ["b"]);
        for none in [r#"{"batchItemFailures":[]}"#, r#"{"batchItemFailures":null}"#, "{}", "null"] {
            assert!(failed(none, true).unwrap().is_empty(), "{none}");
        }
    }

    #[test]
    fn a_report_that_cannot_be_read_or_names_an_unknown_message_fails_the_whole_batch() {
        for wrong in [
            r#"{"batchItemFailures":[{"itemIdentifier":"c"}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
            r#"{"batchItemFailures":[{"id":"a"}]}"#,
            "[7]",
        ] {
            assert_eq!(failed(wrong, true), None, "{wrong}");
        }
        let exited = ended(Outcome::Exited("exit status 70".to_owned()));
        assert_eq!(failures(&exited, &[message("a")], true), None);
    }

    #[test]
    fn without_the_setting_every_answer_is_a_success() {
        assert_eq!(failed(r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#, false).unwrap(), Vec::<String>::new());
    }
}
