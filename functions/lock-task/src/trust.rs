//! How far a request is believed: limits of its times, and the authentication of what earlier responses handed out.
//!
//! Whoever may invoke the function chooses owners, leases and waiting times. Without a key, a lock or an observation that
//! a caller made up counts as much as one that a response has handed out.

use crate::time::epoch_millis;
use hmac::{Hmac, KeyInit, Mac};
use lambda_lock::{MAX_LEASE, Observation};
use lambda_lock_functions::{ConfigError, Environment, flag, optional};
use serde_json::Value;
use sha2::Sha256;
use std::fmt;
use std::time::{Duration, SystemTime};

const MAX_LEASE_VARIABLE: &str = "MAX_LEASE_SECONDS";
const MAX_WAITED: &str = "MAX_WAITED_SECONDS";
const KEYS: &str = "LOCK_HMAC_KEYS";
const REQUIRED: &str = "LOCK_HMAC_REQUIRED";
const SHOW_OWNERS: &str = "SHOW_OWNERS";

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The fewest bytes of a key: as many as the hash has (RFC 2104, section 3).
const MIN_KEY_BYTES: usize = 32;
/// One that signs, and one that is on its way out or in.
const MAX_KEYS: usize = 2;
/// How many characters of a hash stand for an owner.
const SHOWN: usize = 16;

/// What the environment says of the trust in requests.
pub(crate) struct Trust {
    pub(crate) longest_lease: Duration,
    longest_waited: Duration,
    /// The first one signs. Each of them verifies.
    keys: Vec<Hmac<Sha256>>,
    /// Whether what has no HMAC is refused.
    required: bool,
    shows_owners: bool,
}

/// Why an HMAC is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOurs {
    Missing,
    Wrong,
}

impl Trust {
    pub(crate) fn read(environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let longest_lease = seconds(environment, MAX_LEASE_VARIABLE, A_DAY.min(MAX_LEASE))?;
        Ok(Self {
            longest_lease,
            longest_waited: seconds(environment, MAX_WAITED, longest_lease)?,
            keys: keys(environment)?,
            required: flag(environment, REQUIRED)?.unwrap_or(true),
            shows_owners: flag(environment, SHOW_OWNERS)?.unwrap_or(true),
        })
    }

    /// The HMAC of this content as base64. `None` without a key.
    pub(crate) fn hmac(&self, content: impl FnOnce() -> Value) -> Option<String> {
        let key = self.keys.first()?;
        let tag = key.clone().chain_update(content().to_string()).finalize().into_bytes();
        Some(aws_smithy_types::base64::encode(tag))
    }

    /// Whether this content was handed out by this function. Everything was, without a key.
    pub(crate) fn verify(&self, content: impl FnOnce() -> Value, hmac: Option<&str>) -> Result<(), NotOurs> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let Some(hmac) = hmac else {
            return if self.required { Err(NotOurs::Missing) } else { Ok(()) };
        };
        let tag = aws_smithy_types::base64::decode(hmac).map_err(|_| NotOurs::Wrong)?;
        let content = content().to_string();
        // The comparison takes the same time for all wrong tags.
        let is_by = |key: &Hmac<Sha256>| key.clone().chain_update(&content).verify_slice(&tag).is_ok();
        if self.keys.iter().any(is_by) { Ok(()) } else { Err(NotOurs::Wrong) }
    }

    /// How much of the time that a caller says it has waited is believed. `since` is when the observation was handed
    /// out, where that is authenticated.
    pub(crate) fn waited(&self, told: Duration, since: Option<u64>) -> Duration {
        let passed = since.map_or(Duration::MAX, |since| Duration::from_millis(now().saturating_sub(since)));
        told.min(self.longest_waited).min(passed)
    }

    /// How much of an observation is believed. Without an HMAC the time in it is the caller's word too.
    pub(crate) fn observed(&self, told: Observation, hmac: Option<&str>) -> Observation {
        if hmac.is_some() && !self.keys.is_empty() {
            return told;
        }
        told.at_most(self.longest_waited)
    }

    /// When a response hands something out, by the wall clock in epoch milliseconds. `None` without a key.
    pub(crate) fn handed_out_at(&self) -> Option<u64> {
        (!self.keys.is_empty()).then(now)
    }

    /// An owner as others see it: its name, or what tells it from other owners.
    pub(crate) fn shown(&self, owner: &str) -> String {
        if self.shows_owners {
            return owner.to_owned();
        }
        // Without a key anybody can look for the name behind a hash.
        let key = self.keys.first().cloned().or_else(|| Hmac::new_from_slice(&[]).ok());
        let tag = key.map(|key| key.chain_update("owner").chain_update(owner).finalize().into_bytes());
        let hash: String = tag.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
        format!("hidden-{}", &hash[..SHOWN.min(hash.len())])
    }

    pub(crate) fn hides_owners(&self) -> bool {
        !self.shows_owners
    }
}

/// Leaves out the keys.
impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("longest_lease", &self.longest_lease).finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "two invocations compare their wall clocks")]
fn now() -> u64 {
    epoch_millis(SystemTime::now())
}

fn seconds(environment: &Environment<'_>, name: &str, default: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = optional(environment, name)? else { return Ok(default) };
    let seconds = text.parse().ok().filter(|seconds| (1..=MAX_LEASE.as_secs()).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let most = MAX_LEASE.as_secs();
        ConfigError::new(format!("{name} is {text:?}: give a whole number of seconds from 1 to {most}"))
    })
}

fn keys(environment: &Environment<'_>) -> Result<Vec<Hmac<Sha256>>, ConfigError> {
    let text = optional(environment, KEYS)?.unwrap_or_default();
    let texts: Vec<&str> = text.split(',').map(str::trim).filter(|key| !key.is_empty()).collect();
    // The keys are secrets, so the sentence does not quote them.
    if texts.len() > MAX_KEYS || texts.iter().any(|key| key.len() < MIN_KEY_BYTES) {
        return Err(ConfigError::new(format!(
            "{KEYS} cannot be used: give one key, or two separated by a comma, each of {MIN_KEY_BYTES} bytes or more, such \
             as openssl rand -hex 32 makes"
        )));
    }
    let key =
        |key: &str| Hmac::new_from_slice(key.as_bytes()).map_err(|error| ConfigError::new(format!("{KEYS}: {error}")));
    texts.into_iter().map(key).collect()
}
