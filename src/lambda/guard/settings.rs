//! The settings of a guard, which do not depend on the event.

use crate::client::LockClient;
use crate::engine::budget::Budget;
use lambda_runtime::Context;
use std::time::Duration;

/// The settings of [`LockLayer`](super::LockLayer), except those of the key and the response.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) locks: LockClient,
    pub(super) waits: bool,
    pub(super) grace: Option<Duration>,
    pub(super) reserve: Option<Duration>,
}

impl Settings {
    pub(super) fn new(locks: LockClient) -> Self {
        Self { locks, waits: true, grace: None, reserve: None }
    }

    pub(super) fn budget(&self, context: &Context) -> Budget {
        let budget = Budget::from(context);
        let budget = self.grace.into_iter().fold(budget, Budget::grace);
        self.reserve.into_iter().fold(budget, Budget::reserve)
    }
}
