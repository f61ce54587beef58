//! Works on a batch within the time of one invocation. Several orders run at once, each with its own
//! deadline.
//!
//! The remaining time is divided among the messages that have not begun. So a message that hangs takes
//! no time from the others, and the response is returned before the deadline. Without a response Lambda
//! would deliver the whole batch again.

use crate::message::{Message, answer};
use charge_order::{Charged, Request};
use futures_util::StreamExt;
use futures_util::stream;
use lambda_lock::Budget;
use lambda_lock_functions::{Event, Failure};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many orders run at the same time. As many requests may wait for the payment gateway.
const AT_ONCE: usize = 5;
/// The part of the invocation that is reserved for returning the response. After the deadline the
/// function cannot return anything.
const TO_ANSWER: Duration = Duration::from_millis(500);
/// An order is not begun with less time than this.
const LEAST: Duration = Duration::from_millis(500);

/// Works on each message of a batch within its own budget, and returns which messages failed.
pub async fn run<W, F>(event: LambdaEvent<Event>, work: W) -> Result<Value, Failure>
where
    W: Fn(Request, Budget) -> F,
    F: Future<Output = Result<Charged, Failure>>,
{
    let messages = Message::all(&event.payload)?;
    let (time, work) = (&Time::of(&event.context, messages.len()), &work);
    let one = |message: Message| async move {
        let done = time.limit(&message, work).await;
        report(&message, &done);
        done.is_err().then_some(message.id)
    };
    let failed: Vec<_> = stream::iter(messages).map(one).buffer_unordered(AT_ONCE).collect().await;
    Ok(answer(failed.into_iter().flatten()))
}

/// The time of an invocation, and how many messages have not begun.
struct Time {
    context: Context,
    whole: Budget,
    not_begun: AtomicUsize,
}

impl Time {
    fn of(context: &Context, messages: usize) -> Self {
        Self { context: context.clone(), whole: Budget::from(context), not_begun: AtomicUsize::new(messages) }
    }

    /// Works on a message until its deadline at the latest.
    async fn limit<W, F>(&self, message: &Message, work: &W) -> Result<Charged, Failure>
    where
        W: Fn(Request, Budget) -> F,
        F: Future<Output = Result<Charged, Failure>>,
    {
        let share = self.share();
        let request = Request::read(&message.event()?)?;
        if share < LEAST {
            return Err(Failure::unknown("there was no time left to begin; deliver the message again"));
        }
        let budget = self.budget(share);
        match tokio::time::timeout(share, Box::pin(work(request, budget))).await {
            Ok(done) => done,
            Err(_) => {
                Err(Failure::unknown(format!("not done within {share:?}; the order is free again when its lease ends")))
            }
        }
    }

    /// Returns the time for the next message: an equal part for each remaining round.
    fn share(&self) -> Duration {
        // Each message asks once, so it does not fall below zero.
        let not_begun = self.not_begun.fetch_sub(1, Ordering::Relaxed);
        let rounds = u32::try_from(not_begun.div_ceil(AT_ONCE)).unwrap_or(u32::MAX).max(1);
        self.whole.remaining().unwrap_or_default().saturating_sub(TO_ANSWER) / rounds
    }

    /// Returns the budget of the invocation with an earlier end, so that the lease of an order follows
    /// its own deadline.
    fn budget(&self, share: Duration) -> Budget {
        let later = self.whole.remaining().unwrap_or_default().saturating_sub(share);
        let mut context = self.context.clone();
        context.deadline = context.deadline.saturating_sub(u64::try_from(later.as_millis()).unwrap_or(u64::MAX));
        Budget::from(&context)
    }
}

/// Logs the result of a message. SQS does not learn why a message failed.
fn report(message: &Message, done: &Result<Charged, Failure>) {
    let message_id = &message.id;
    match done {
        Ok(Charged { receipt, replayed }) => {
            tracing::info!(message_id, replayed, fencing_token = receipt.fencing_token, "charged");
        }
        Err(failure) => failure.clone().because_of("not charged").log(Some(message_id)),
    }
}
