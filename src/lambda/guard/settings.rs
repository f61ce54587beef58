//! The settings of a guard, which do not depend on the event.

use crate::client::LockClient;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use crate::lambda::tenant::tenant_prefix;
use lambda_lock_protocol::Invalid;
use lambda_runtime::Context;
use std::time::Duration;

/// The settings of [`LockLayer`](super::LockLayer), except those of the key and the response.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) locks: LockClient,
    pub(super) waits: bool,
    pub(super) per_tenant: bool,
    pub(super) is_cut: bool,
    pub(super) grace: Option<Duration>,
    pub(super) reserve: Option<Duration>,
}

impl Settings {
    pub(super) fn new(locks: LockClient) -> Self {
        Self { locks, waits: true, per_tenant: false, is_cut: true, grace: None, reserve: None }
    }

    /// Returns the client for this invocation.
    pub(super) fn locks(&self, context: &Context) -> Result<LockClient, Error> {
        if !self.per_tenant {
            return Ok(self.locks.clone());
        }
        let prefix = tenant_prefix(context).ok_or_else(|| {
            Invalid::new(
                "the lock is one for each tenant, and this invocation has no tenant id: create the function with tenant \
                 isolation and invoke it with a tenant id, or leave per_tenant out",
            )
        })?;
        self.locks.prefixed(&prefix)
    }

    pub(super) fn budget(&self, context: &Context) -> Budget {
        let budget = Budget::from(context);
        let budget = self.grace.into_iter().fold(budget, Budget::grace);
        self.reserve.into_iter().fold(budget, Budget::reserve)
    }
}
