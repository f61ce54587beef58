//! Charges the order of one event.

use crate::charge::charge;
use crate::deps::Deps;
use crate::order::Request;
use lambda_lock::{Budget, DEFAULT_GRACE};
use lambda_lock_functions::{Event, Failure};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::Value;
use std::time::Duration;

/// The part of the invocation that is reserved for releasing the lock and returning the response. After
/// the deadline the function cannot return anything.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// Charges the order of an event, or returns the stored result if it was charged before.
pub async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let request = Request::read(&event.payload)?;
    Ok(charge(&request, &budget(event.context), deps).await?.answer())
}

/// A budget that ends before the invocation does. Its grace covers the rest.
fn budget(mut context: Context) -> Budget {
    context.deadline = context.deadline.saturating_sub(TO_ANSWER.as_millis() as u64);
    Budget::from(&context).grace(DEFAULT_GRACE + TO_ANSWER)
}
