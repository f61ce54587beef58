//! Charges the order of one event.

use crate::charge::charge;
use crate::deps::Deps;
use crate::order::Request;
use lambda_lock_functions::{Event, Failure, budget};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use std::time::Duration;

/// The part of the invocation that is reserved for releasing the lock and returning the response. After
/// the deadline the function cannot return anything.
const TO_ANSWER: Duration = Duration::from_secs(1);

/// Charges the order of an event, or returns the stored result if it was charged before.
pub async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let request = Request::read(&event.payload)?;
    Ok(charge(&request, &budget(event.context, TO_ANSWER), deps).await?.answer())
}
