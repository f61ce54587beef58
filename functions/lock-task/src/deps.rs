//! Clients and settings that all invocations of a process share.

use lambda_lock::LockClient;
use lambda_lock_functions::{Config, ConfigError};

/// Clients and settings that all invocations of a process share.
pub(crate) struct Deps {
    pub(crate) locks: LockClient,
    /// Whether the lock table has a sort key.
    pub(crate) sort_key: bool,
}

impl Deps {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self { locks: config.locks()?, sort_key: config.has_sort_key() })
    }
}
