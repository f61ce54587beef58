//! Runs an operation: the caller's time, clocks, requests to DynamoDB and their answers, the table.

pub(crate) mod answer;
pub(crate) mod attributes;
pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod clock;
pub(crate) mod deadline;
pub(crate) mod dynamodb;
pub(crate) mod error;
mod interceptor;
pub(crate) mod table;
pub(crate) mod transaction;
pub(crate) mod transport;
pub(crate) mod wall_clock;

use crate::protocol::{ClockBounds, Settings};
use aws_sdk_dynamodb::Config;
use budget::Budget;
use clock::{Clock, SharedClock};
use deadline::{Deadline, LeasePolicy};
use std::time::Duration;
use transport::Transport;
use wall_clock::WallClockCheck;

/// How many request timeouts a call without a budget may spend on faults.
const TIMEOUTS_PER_CALL: u32 = 3;

/// What runs operations on one lock table: shared by a client, its clones, and the guards of its locks.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) transport: Box<dyn Transport>,
    /// As the caller gave it.
    pub(crate) config: Config,
    pub(crate) table: String,
    pub(crate) settings: Settings,
    pub(crate) owner: String,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: SharedClock,
    pub(crate) wall_clock: WallClockCheck,
}

impl Engine {
    /// The name of the lock table.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn clock_bounds(&self) -> &ClockBounds {
        &self.settings.clock_bounds
    }

    /// Who holds what a call acquires: whom the caller names, else a name for this call alone, with that of the
    /// budget or the client in front. Two holders must not have one name by accident: a reclaim goes by it.
    pub(crate) fn owner_of_call(&self, named: Option<String>, budget: Option<&Budget>) -> String {
        named.unwrap_or_else(|| {
            let [a, b, c, d, ..] = self.clock().random();
            let name = budget.and_then(Budget::owner_name).unwrap_or(&self.owner);
            format!("{name}/{:08x}", u32::from_le_bytes([a, b, c, d]))
        })
    }

    /// The name that people know this client by.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(crate) fn shared_clock(&self) -> &SharedClock {
        &self.clock
    }

    pub(crate) fn wall_clock(&self) -> &WallClockCheck {
        &self.wall_clock
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// The time for one call that does not wait for anybody: enough for faults, never more than the budget has.
    pub(crate) fn deadline(&self, lease: LeasePolicy, budget: Option<&Budget>) -> Deadline {
        // Before the budget is asked: a pause in between must not give time back.
        let started = self.clock().now();
        let faults = self.time_for_faults();
        let left = budget.and_then(Budget::remaining).unwrap_or(faults);
        Deadline::new(started, faults.min(left), lease)
    }

    /// The time for one transaction: all that the budget has, since another transaction on one of the items may take a
    /// while.
    pub(crate) fn deadline_of_transaction(&self, lease: LeasePolicy, budget: Option<&Budget>) -> Deadline {
        let started = self.clock().now();
        let time = budget.and_then(Budget::remaining).unwrap_or_else(|| self.time_for_faults());
        Deadline::new(started, time, lease)
    }

    fn time_for_faults(&self) -> Duration {
        self.request_timeout.saturating_mul(TIMEOUTS_PER_CALL)
    }
}
