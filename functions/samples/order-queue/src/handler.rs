//! Charges the orders of a batch. Each message is an order.

use crate::batch::run;
use charge_order::{Deps, charge};
use lambda_lock_functions::{Event, Failure};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

/// Charges the orders of a batch, and returns which messages must be delivered again.
pub async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    run(event, |request, budget| async move { charge(&request, &budget, deps).await }).await
}
