//! Converts between the types of the WIT package and those of the crate. Both components include this file, because
//! each has bindings of its own.

use crate::bindings::exports::lambda_lock::lock::types;
use lambda_lock_protocol::{LockKey, Observation, SavedLock};
use std::time::{Duration, SystemTime};

/// Whole milliseconds, rounded down, so that a reported time is never longer than the real one.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Epoch milliseconds. A time before 1970 counts as 1970.
pub(crate) fn epoch_millis(time: SystemTime) -> u64 {
    millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

impl From<types::LockKey> for LockKey {
    fn from(key: types::LockKey) -> Self {
        LockKey::new(key.key, key.sort_key)
    }
}

impl From<&LockKey> for types::LockKey {
    fn from(key: &LockKey) -> Self {
        Self { key: key.key().to_owned(), sort_key: key.sort_key().map(str::to_owned) }
    }
}

impl From<types::SavedLock> for SavedLock {
    fn from(saved: types::SavedLock) -> Self {
        let types::SavedLock { key, owner, version, fencing_token, lease, lease_ends_at, workflow } = saved;
        let lease = Duration::from_millis(lease);
        SavedLock::from_parts(key.into(), owner, version, fencing_token, lease, lease_ends_at, workflow)
    }
}

impl From<&SavedLock> for types::SavedLock {
    fn from(saved: &SavedLock) -> Self {
        Self {
            key: (&saved.key()).into(),
            owner: saved.owner().to_owned(),
            version: saved.version().to_owned(),
            fencing_token: saved.fencing_token(),
            lease: millis(saved.lease()),
            lease_ends_at: saved.lease_ends_at().map(epoch_millis).unwrap_or_default(),
            workflow: saved.workflow().map(str::to_owned),
        }
    }
}

impl From<types::Observation> for Observation {
    fn from(observation: types::Observation) -> Self {
        let types::Observation { version, lease, unchanged_for } = observation;
        Observation::from_parts(version, Duration::from_millis(lease), Duration::from_millis(unchanged_for))
    }
}

impl From<Observation> for types::Observation {
    fn from(observation: Observation) -> Self {
        Self {
            version: observation.version().to_owned(),
            lease: millis(observation.lease()),
            unchanged_for: millis(observation.unchanged_for()),
        }
    }
}
