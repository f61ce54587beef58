//! One row of the lock table, as the commands judge and print it.

use clap::ValueEnum;
use lambda_lock::{
    Attribute, LockKey,
    operator::{Listed, ListedRow, PeekedLock},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the keys of idempotent work begin with.
pub(crate) const ONCE: &str = "once/";

/// The prefix of the client whose idempotent work has this key, without its slash. The crate only knows the prefix of its own
/// client, so it would make a lock where the record of that work belongs.
pub(crate) fn prefix_of_work(key: &LockKey) -> Option<&str> {
    work_of(key.key())?.0.strip_suffix('/')
}

/// The prefix of the client whose idempotent work has this key, and the work's name.
pub(crate) fn work_of(key: &str) -> Option<(&str, &str)> {
    let of_prefix = || key.find(&format!("/{ONCE}")).map(|at| key.split_at(at + 1));
    let (prefix, work) = if key.starts_with(ONCE) { ("", key) } else { of_prefix()? };
    Some((prefix, work.strip_prefix(ONCE)?))
}

/// What a row says about its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It has a holder, which may be alive.
    Held,
    /// Its lease ended so long ago that the next acquire takes it over.
    Dead,
    /// It is free.
    Released,
    /// It is the record of idempotent work that has an outcome.
    Settled,
    /// It is no lock record.
    Invalid,
}

impl State {
    /// Judges by the wall clock, as an acquire does. A row without an end is judged by observation alone, which takes a
    /// whole lease.
    pub(crate) fn of(lock: &PeekedLock, now: SystemTime, max_clock_skew: Option<Duration>) -> Self {
        if lock.released {
            return Self::Released;
        }
        let is_dead = max_clock_skew.is_some_and(|skew| lock.is_dead(now, skew));
        if is_dead { Self::Dead } else { Self::Held }
    }
}

/// A row, as `--json` prints it. Times are in epoch milliseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sort_key: Option<String>,
    pub(crate) state: State,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<Held>,
    /// What is wrong with a row that is no lock record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// What the row of a lock says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Held {
    pub(crate) holder: String,
    pub(crate) lease_seconds: f64,
    pub(crate) renewed_at: Option<u64>,
    pub(crate) lease_ends_at: Option<u64>,
    pub(crate) fencing_token: Option<u64>,
    /// How many wait in line, as far as the row tells.
    pub(crate) waiting: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) break_reason: Option<String>,
    /// Why it is frozen, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) freeze_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frozen_at: Option<u64>,
    /// Those of the caller, as DynamoDB writes them: a number may have 38 digits. Only `show` prints them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) attributes: BTreeMap<String, Value>,
    pub(crate) version: String,
}

impl Row {
    /// `None` for a row that is neither a lock nor work.
    pub(crate) fn of_listed(listed: Listed, now: SystemTime, max_clock_skew: Option<Duration>) -> Option<Self> {
        Some(match listed.row {
            ListedRow::WakeItem => return None,
            ListedRow::Lock(lock) => Self::of_lock(&listed.key, &lock, State::of(&lock, now, max_clock_skew)),
            ListedRow::Invalid(error) => {
                Self { problem: Some(error.to_string()), ..Self::bare(&listed.key, State::Invalid) }
            }
            _ => Self::bare(&listed.key, State::Settled),
        })
    }

    pub(crate) fn of_lock(key: &LockKey, lock: &PeekedLock, state: State) -> Self {
        let held = Held {
            holder: lock.holder.clone(),
            lease_seconds: lock.lease.as_secs_f64(),
            renewed_at: lock.renewed_at.map(epoch_millis),
            lease_ends_at: lock.lease_ends_at.map(epoch_millis),
            fencing_token: lock.fencing_token,
            waiting: lock.waiting,
            workflow: lock.workflow.clone(),
            break_reason: lock.break_reason.clone(),
            freeze_reason: lock.freeze_reason.clone(),
            frozen_at: lock.freeze_changed_at.filter(|_| lock.freeze_reason.is_some()).map(epoch_millis),
            attributes: BTreeMap::new(),
            version: lock.version.clone(),
        };
        Self { lock: Some(held), ..Self::bare(key, state) }
    }

    pub(crate) fn with_attributes(mut self, lock: &PeekedLock) -> Self {
        if let Some(held) = &mut self.lock {
            let of_dynamodb = |(name, value): (&String, &Attribute)| match value {
                Attribute::Text(text) => Some((name.clone(), json!({ "S": text }))),
                Attribute::Number(number) => Some((name.clone(), json!({ "N": number }))),
                _ => None,
            };
            held.attributes = lock.attributes.iter().filter_map(of_dynamodb).collect();
        }
        self
    }

    fn bare(key: &LockKey, state: State) -> Self {
        let sort_key = key.sort_key().map(str::to_owned);
        Self { key: key.key().to_owned(), sort_key, state, lock: None, problem: None }
    }
}

pub(crate) fn epoch_millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn from_epoch_millis(millis: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}
