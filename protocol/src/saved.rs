//! A saved lock: a held lock as data, to be resumed, reclaimed or released somewhere else.

use super::holding::{Holding, LeaseValidity, PendingCommit};
use super::instants::{Instants, from_epoch_millis, millis_rounded_up};
use super::invalid::Invalid;
use super::key::LockKey;
use super::lease::Lease;
use super::record::quoted;
use super::request::DataChange;
use super::settings::Settings;
use super::version::{Stamp, Version};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// By how much the newest write of a saved lock may be ahead of the clock. Who is further behind cannot sign requests to AWS.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

/// A held lock as data. The next function with this crate can go on holding the same lock with it. (The `lock` that
/// the function `lock-task` returns is for `lock-task` alone. It may contain `data`, which is refused here.)
///
/// As JSON it reads
/// `{"key":"customer-7","owner":"…","version":"ll1-…","fencingToken":1760000000001,"leaseSeconds":300,"leaseEndsAt":1760000300000}`,
/// with `sortKey` and `workflow` where there are any, `seen` while the outcome of a renewal is unknown, and `commit`
/// while that of a commit is. It contains no secret, but whoever has it can renew and release the
/// lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SavedLock {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sort_key: Option<String>,
    owner: String,
    version: String,
    fencing_token: u64,
    lease_seconds: f64,
    lease_ends_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    /// The newest stamp that this holder saw on the row, where it sent a newer one: a release goes no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<Stamp>,
    /// The last commit, while its outcome is unknown to the caller. It must not be sent again as a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<PendingCommit>,
}

impl SavedLock {
    /// Makes a saved lock from its parts, for formats that serde does not write. Invalid parts are reported when it
    /// is used.
    pub fn from_parts(
        key: LockKey,
        owner: String,
        version: String,
        fencing_token: u64,
        lease: Duration,
        lease_ends_at_millis: u64,
        workflow: Option<String>,
    ) -> Self {
        Self {
            key: key.key().to_owned(),
            sort_key: key.sort_key().map(str::to_owned),
            owner,
            version,
            fencing_token,
            lease_seconds: lease.as_secs_f64(),
            lease_ends_at: lease_ends_at_millis,
            workflow,
            seen: None,
            commit: None,
        }
    }

    /// The key of the lock.
    pub fn key(&self) -> LockKey {
        LockKey::new(self.key.as_str(), self.sort_key.clone())
    }

    /// The owner that holds the lock.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fencing token of the grant.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// The newest version that this holder sent.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The lease on the row.
    pub fn lease(&self) -> Duration {
        Duration::try_from_secs_f64(self.lease_seconds).unwrap_or_default()
    }

    /// When the lease ends, by the wall clock of its writer.
    pub fn lease_ends_at(&self) -> Option<SystemTime> {
        from_epoch_millis(self.lease_ends_at)
    }

    /// The workflow that holds the lock.
    pub fn workflow(&self) -> Option<&str> {
        self.workflow.as_deref()
    }

    /// The last commit under this lock, while its outcome is unknown to the caller.
    #[doc(hidden)]
    pub fn commit(&self) -> Option<PendingCommit> {
        self.commit
    }

    /// Saves a held lock.
    #[doc(hidden)]
    pub fn of(holding: &Holding) -> Self {
        let saved = Self::from_parts(
            holding.key.clone(),
            holding.owner.clone(),
            holding.newest.to_string(),
            holding.token,
            holding.lease.duration(),
            holding.ends_at_ms,
            holding.workflow.clone(),
        );
        Self { seen: Some(holding.seen).filter(|seen| *seen < holding.newest.stamp), commit: holding.pending, ..saved }
    }

    /// Checks that it belongs to a table with these settings.
    #[doc(hidden)]
    pub fn check(&self, settings: &Settings) -> Result<(), Invalid> {
        settings.check_lock_key(&self.key())?;
        settings.check_write(&self.key(), self.owner(), self.workflow(), &DataChange::Keep)
    }

    /// Parses the version.
    #[doc(hidden)]
    pub fn parsed_version(&self) -> Result<Version, Invalid> {
        Version::parse(&self.version).ok_or_else(|| {
            Invalid::new(format!(
                "the saved lock's version {} was not written by this client: pass the saved lock on unchanged",
                quoted(&self.version)
            ))
        })
    }

    /// Restores a saved lock. Its lease counts as over until it has been renewed.
    #[doc(hidden)]
    pub fn holding(&self, now: Instants, settings: &Settings) -> Result<Holding, Invalid> {
        let newest = self.parsed_version()?;
        // The row would keep such a time, and nothing could be written after it.
        if newest.stamp.millis() > millis_rounded_up(now.wall.saturating_add(MAX_AHEAD)) {
            return Err(Invalid::new(
                "the saved lock's version is of a time that has not come yet: pass the saved lock on unchanged, or set the clock",
            ));
        }
        let lease = Duration::try_from_secs_f64(self.lease_seconds).map_err(|_| {
            // Without the number: to write a fraction takes a tenth of the component `protocol`.
            Invalid::new(
                "the saved lock's leaseSeconds must be a number of seconds, 0 or more: pass the saved lock on unchanged",
            )
        })?;
        Lease::check(lease)?;
        // The row's end of the lease counts. This drops an end that no clock within bounds can have written, because
        // on the row it would keep everybody from taking over by the wall clock.
        let latest = now.wall.saturating_add(lease).saturating_add(settings.clock_bounds.allowed_skew());
        Ok(Holding {
            key: self.key(),
            owner: self.owner.clone(),
            workflow: self.workflow.clone(),
            token: self.fencing_token,
            newest,
            seen: self.seen.unwrap_or(newest.stamp).min(newest.stamp),
            lease: settings.lease(round_to_millis(lease)),
            ends_at_ms: self.lease_ends_at.min(millis_rounded_up(latest)),
            validity: LeaseValidity::none(now),
            keep: None,
            pending: self.commit,
        })
    }
}

/// Restores whole milliseconds that were converted to decimal seconds.
fn round_to_millis(duration: Duration) -> Duration {
    let nearest = Duration::from_millis((duration.as_secs_f64() * 1000.0).round() as u64);
    let rounded = if nearest.abs_diff(duration) < Duration::from_micros(1) { nearest } else { duration };
    // A lease of zero is not valid.
    rounded.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_milliseconds_survive_decimal_seconds() {
        for millis in [1, 20_001, 300_000, 999_999_999] {
            let seconds = Duration::from_millis(millis).as_secs_f64();
            assert_eq!(round_to_millis(Duration::from_secs_f64(seconds)), Duration::from_millis(millis));
        }
    }
}
