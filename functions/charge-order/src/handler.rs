//! One event, one order.

use crate::charge::charge;
use crate::deps::Deps;
use crate::order::Request;
use lambda_lock::{Budget, DEFAULT_GRACE};
use lambda_lock_functions::{Event, Failure};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::Value;
use std::time::Duration;

/// What is kept of the invocation for giving the attempt back and for answering: whoever is killed at the
/// deadline answers nothing.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// Charges the order of an event, or answers what was stored when it had been charged.
pub async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let request = Request::read(&event.payload)?;
    Ok(charge(&request, &budget(event.context), deps).await?.answer())
}

/// Ends earlier than the invocation, and covers all of it.
fn budget(mut context: Context) -> Budget {
    context.deadline = context.deadline.saturating_sub(TO_ANSWER.as_millis() as u64);
    Budget::from(&context).grace(DEFAULT_GRACE + TO_ANSWER)
}
