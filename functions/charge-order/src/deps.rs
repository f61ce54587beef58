//! What outlives an invocation.

use crate::gateway::Gateway;
use crate::orders::Orders;
use lambda_lock::LockClient;
use lambda_lock_functions::{Config, ConfigError, Environment};

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
