//! One event, one order.

use crate::charge::charge;
use crate::gateway::Gateway;
use crate::order::Request;
use crate::orders::Orders;
use lambda_lock::{Budget, LockClient};
use lambda_lock_functions::{Config, ConfigError, Environment, Event, Failure};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

/// What outlives an invocation.
#[derive(Debug)]
pub struct Deps {
    /// Locks in the lock table.
    pub locks: LockClient,
    /// The orders table.
    pub orders: Orders,
    /// The payment gateway.
    pub gateway: Gateway,
    /// Whether lock keys have a sort key.
    pub sort_key: bool,
}

impl Deps {
    /// Reads what is left of the environment. Sends nothing.
    pub fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            locks: config.locks()?,
            orders: Orders::read(environment)?,
            gateway: Gateway::read(environment)?,
            sort_key: config.has_sort_key(),
        })
    }
}

/// Charges the order of an event, or answers what was stored when it had been charged.
pub async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let budget = Budget::from(&event.context);
    let request = Request::read(&event.payload)?;
    Ok(charge(&request, &budget, deps).await?.answer())
}
