//! Clients and settings that all invocations of a process share, and those of one tenant.

use crate::trust::Trust;
use lambda_lock::lambda::tenant_prefix;
use lambda_lock::{LockClient, LockKey};
use lambda_lock_functions::{Config, ConfigError, Environment, Failure, Waker, flag, optional};
use lambda_runtime::Context;
use std::sync::Arc;
use std::time::Duration;

/// Clients and settings that all invocations of a process share.
#[derive(Clone)]
pub(crate) struct Deps {
    /// Its keys begin with `LOCK_KEY_PREFIX`, and during an invocation with the prefix of the tenant behind it.
    pub(crate) locks: LockClient,
    /// Whether the lock table has a sort key.
    pub(crate) sort_key: bool,
    /// Whether each tenant has locks of its own.
    pub(crate) per_tenant: bool,
    /// By how much two wall clocks may differ. `None`: nobody is dead by the wall clock.
    pub(crate) max_clock_skew: Option<Duration>,
    /// How far requests are believed.
    pub(crate) trust: Arc<Trust>,
    /// Wakes executions that wait in line.
    pub(crate) waker: Arc<Waker>,
}

impl Deps {
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let locks = match optional(environment, "LOCK_KEY_PREFIX")? {
            Some(prefix) => config.prefixed_locks(&prefix)?,
            None => config.locks()?,
        };
        Ok(Self {
            locks,
            sort_key: config.has_sort_key(),
            per_tenant: flag(environment, "LOCK_PER_TENANT")?.unwrap_or(false),
            max_clock_skew: config.max_clock_skew(),
            trust: Arc::new(Trust::read(environment)?),
            waker: Arc::new(Waker::new(config, environment)?),
        })
    }

    /// The same for one invocation: where each tenant has locks of its own, those of the invocation's tenant.
    pub(crate) fn of_tenant(&self, context: &Context) -> Result<Self, Failure> {
        let mut deps = self.clone();
        if self.per_tenant {
            let prefix = tenant_prefix(context).ok_or_else(|| {
                Failure::invalid_request(
                    "the invocation has no tenant id, and LOCK_PER_TENANT is true: create the function with tenant \
                     isolation and invoke it with a tenant id, or set LOCK_PER_TENANT to false",
                )
            })?;
            deps.locks = self.locks.prefixed(&prefix)?;
        }
        Ok(deps)
    }

    /// The most bytes of a key in a request: its prefix comes before it in the row.
    pub(crate) fn longest_key(&self) -> usize {
        LockKey::MAX_KEY_BYTES - self.locks.key_prefix().len()
    }

    /// The key of a request as it is in the row.
    pub(crate) fn row(&self, key: &LockKey) -> LockKey {
        let prefix = self.locks.key_prefix();
        LockKey::new(format!("{prefix}{}", key.key()), key.sort_key().map(str::to_owned))
    }
}
