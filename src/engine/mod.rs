//! Runs an operation: the caller's time, clocks, requests to DynamoDB and their responses, and the table.

pub(crate) mod attributes;
pub(crate) mod budget;
pub(crate) mod cause;
pub(crate) mod clock;
pub(crate) mod connections;
pub(crate) mod deadline;
pub(crate) mod dynamodb;
pub(crate) mod error;
pub(crate) mod fault;
mod interceptor;
pub(crate) mod operation;
pub(crate) mod places;
pub(crate) mod port;
pub(crate) mod prefix;
pub(crate) mod report;
pub(crate) mod table;
pub(crate) mod transaction;
pub(crate) mod transport;
pub(crate) mod wall_clock;

use aws_sdk_dynamodb::config::Builder;
use budget::Budget;
use clock::Clock;
use connections::Connections;
use deadline::{Deadline, LeasePolicy};
use lambda_lock_protocol::{ClockBounds, Invalid, LockKey, SavedLock, Settings};
use places::GivenBack;
use prefix::KeyPrefix;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use transport::Transport;
use wall_clock::WallClockCheck;

/// How many request timeouts a call without a budget may spend on retries.
const TIMEOUTS_PER_CALL: u32 = 3;

/// Runs operations on one lock table. A client, its clones, and the guards of its locks share it. A client with a
/// [prefix](KeyPrefix) has a copy, which shares the connections and what is known about the wall clock.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(crate) transport: Arc<dyn Transport>,
    /// As the caller gave it.
    pub(crate) config: Arc<Builder>,
    pub(crate) connections: Connections,
    pub(crate) table: String,
    pub(crate) settings: Settings,
    /// As the caller gave it, or drawn at its first use.
    pub(crate) owner: OnceLock<String>,
    /// Whether each key is only ever locked from one Region.
    pub(crate) one_home_region: bool,
    /// Whether the events of [`report`] are at INFO, and not at DEBUG.
    pub(crate) operations_at_info: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall_clock: Arc<WallClockCheck>,
    pub(crate) key_prefix: KeyPrefix,
    /// The places of semaphores that this process gave back.
    pub(crate) given_back: Arc<GivenBack>,
}

impl Engine {
    pub(crate) fn clock_bounds(&self) -> &ClockBounds {
        &self.settings.clock_bounds
    }

    /// Returns an engine of the same table whose keys all begin with this prefix, after the prefix that they have.
    pub(crate) fn prefixed(&self, prefix: &str) -> Result<Self, Invalid> {
        Ok(Self { key_prefix: self.key_prefix.then(prefix)?, ..self.clone() })
    }

    /// Checks the key of a plain lock, as it is in the row.
    pub(crate) fn check_lock_key(&self, row: &LockKey) -> Result<(), Invalid> {
        if self.key_prefix.as_str().is_empty() {
            return self.settings.check_lock_key(row);
        }
        self.settings.check_lock_key(&self.key_prefix.behind(row)?)?;
        // With its prefix the key may be too long.
        self.settings.check_key(row)
    }

    /// Checks the key of any row, also of idempotent work.
    pub(crate) fn check_key(&self, row: &LockKey) -> Result<(), Invalid> {
        if !self.key_prefix.as_str().is_empty() {
            self.settings.check_key(&self.key_prefix.behind(row)?)?;
        }
        self.settings.check_key(row)
    }

    /// Checks that a saved lock belongs to this client, and that all of its parts are valid.
    pub(crate) fn check_saved(&self, saved: &SavedLock) -> Result<(), Invalid> {
        self.check_lock_key(&saved.key())?;
        saved.check(&self.settings)?;
        saved.holding(self.clock.now(), &self.settings).map(drop)
    }

    /// The owner of the lock that a call acquires. This is the owner that the caller names. Otherwise it is a name
    /// for this call alone, with the name of the budget or the client as its prefix. Two holders must not have the
    /// same name by accident, because a reclaim compares names.
    pub(crate) fn owner_of_call(&self, named: Option<String>, budget: Option<&Budget>) -> String {
        named.unwrap_or_else(|| {
            let [a, b, c, d, ..] = self.clock.random();
            let name = budget.and_then(Budget::owner_name).unwrap_or_else(|| self.owner());
            format!("{name}/{:08x}", u32::from_le_bytes([a, b, c, d]))
        })
    }

    /// The name of this client, for people. A default is drawn at its first use and not when the client is built:
    /// processes that are restored from one snapshot (SnapStart) share what was drawn before it.
    pub(crate) fn owner(&self) -> &str {
        self.owner.get_or_init(|| {
            let [a, b, c, d, ..] = self.clock.random();
            format!("lambda-lock-{:08x}", u32::from_le_bytes([a, b, c, d]))
        })
    }

    /// The deadline of a call that waits for no other holder. It has enough time for retries, but never more than the
    /// budget.
    pub(crate) fn deadline(&self, lease: LeasePolicy, budget: Option<&Budget>) -> Deadline {
        // Read before the budget is, so that a pause in between does not add time.
        let started = self.clock.now();
        let (faults, left) = (self.time_for_faults(), budget.and_then(Budget::remaining));
        Deadline::new(started, left.map_or(faults, |left| left.min(faults)), left, lease)
    }

    /// The deadline of a transaction. It has all of the budget's time, because another transaction on one of the
    /// items may take long.
    pub(crate) fn deadline_of_transaction(&self, lease: LeasePolicy, budget: Option<&Budget>) -> Deadline {
        let started = self.clock.now();
        let left = budget.and_then(Budget::remaining);
        Deadline::new(started, left.unwrap_or_else(|| self.time_for_faults()), left, lease)
    }

    /// How long a call without a budget may wait for responses.
    pub(crate) fn time_for_faults(&self) -> Duration {
        self.request_timeout.saturating_mul(TIMEOUTS_PER_CALL)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings of the SDK would fill pages.
        f.debug_struct("Engine")
            .field("table", &self.table)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}
