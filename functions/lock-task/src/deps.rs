//! What outlives an invocation.

use lambda_lock::LockClient;
use lambda_lock_functions::{Config, ConfigError};

/// What outlives an invocation.
pub(crate) struct Deps {
    pub(crate) locks: LockClient,
    /// Whether lock keys have a sort key.
    pub(crate) sort_key: bool,
}

impl Deps {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self { locks: config.locks()?, sort_key: config.has_sort_key() })
    }
}
