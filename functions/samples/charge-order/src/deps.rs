//! Clients and settings that all invocations of a process share.

use crate::gateway::Gateway;
use crate::orders::Orders;
use lambda_lock::LockClient;
use lambda_lock_functions::{Config, ConfigError, Environment, may_simulate};

/// Clients and settings that all invocations of a process share.
#[derive(Debug)]
pub struct Deps {
    /// The lock client.
    pub locks: LockClient,
    /// The orders table.
    pub orders: Orders,
    /// The payment gateway.
    pub gateway: Gateway,
    /// Whether the lock table has a sort key.
    pub sort_key: bool,
    /// Whether an event may ask for delays, failures and crashes.
    pub simulates: bool,
}

impl Deps {
    /// Reads the rest of the environment. Sends no request.
    pub fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            locks: config.locks()?,
            orders: Orders::read(environment)?,
            gateway: Gateway::read(environment)?,
            sort_key: config.has_sort_key(),
            simulates: may_simulate(environment)?,
        })
    }
}
