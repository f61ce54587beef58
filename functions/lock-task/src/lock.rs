//! A lock as the caller passes it around: the crate's token, and the payload beside it.

use lambda_lock::protocol::{LONGEST_KEY, LONGEST_LEASE, LONGEST_NAME, LONGEST_SORT_KEY, Lease, Version};
use lambda_lock::{LockKey, LockToken};
use lambda_lock_functions::{Failure, Fields, seconds_json};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `{"key":…,"owner":…,"version":…,"fencingToken":…,"leaseSeconds":…,"leaseEndsAt":…}`, with `sortKey`
/// and `data` where there are any. The workflow stands on the row: renewal keeps it there and release
/// removes it, so nobody needs to carry it.
#[derive(Debug)]
pub(crate) struct LockJson {
    pub(crate) token: LockToken,
    /// What the row's payload was when the lock was acquired. It is only passed on: the row keeps its
    /// own.
    pub(crate) data: Option<String>,
}

impl LockJson {
    /// Reads the field `lock`, as it was answered.
    pub(crate) fn read(request: &mut Fields, with_sort_key: bool) -> Result<Self, Failure> {
        let mut fields = request.object("lock", "lock.")?;
        let key = LockKey::new(fields.name("key", LONGEST_KEY)?, sort_key(&mut fields, with_sort_key)?);
        let owner = fields.name("owner", LONGEST_NAME)?;
        let version = fields.text("version")?;
        if Version::parse(&version).is_none() {
            return Err(fields.malformed("version", "give the lock exactly as it was answered"));
        }
        let fencing_token = fields.whole_number("fencingToken")?;
        let (lease, ends) = (lease(&mut fields)?, fields.whole_number("leaseEndsAt")?);
        let token = LockToken::from_parts(key, owner, version, fencing_token, lease, ends, None);
        let data = fields.optional_text("data")?;
        fields.nothing_else()?;
        Ok(Self { token, data })
    }

    /// Writes it down.
    pub(crate) fn json(&self) -> Value {
        let token = &self.token;
        let key = token.key();
        let mut json = json!({
            "key": key.key(),
            "owner": token.owner(),
            "version": token.version(),
            "fencingToken": token.fencing_token(),
            "leaseSeconds": seconds_json(token.lease()),
            "leaseEndsAt": token.lease_ends_at().map(epoch_millis),
        });
        if let Some(sort_key) = key.sort_key() {
            json["sortKey"] = sort_key.into();
        }
        if let Some(data) = &self.data {
            json["data"] = data.as_str().into();
        }
        json
    }
}

/// As times are written in JSON.
pub(crate) fn epoch_millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The sort key: required where the table has one, refused where it has none.
pub(crate) fn sort_key(fields: &mut Fields, with_sort_key: bool) -> Result<Option<String>, Failure> {
    match (with_sort_key, fields.has("sortKey")) {
        (true, _) => fields.name("sortKey", LONGEST_SORT_KEY).map(Some),
        (false, false) => Ok(None),
        (false, true) => Err(fields.malformed("sortKey", "the lock table has no sort key; remove it")),
    }
}

/// `leaseSeconds`, as a lease may be.
pub(crate) fn lease(fields: &mut Fields) -> Result<Duration, Failure> {
    let lease = fields.seconds("leaseSeconds")?;
    let hint = || format!("give more than 0 and at most {} seconds", LONGEST_LEASE.as_secs());
    Lease::check(lease).map_err(|_| fields.malformed("leaseSeconds", &hint()))?;
    Ok(lease)
}
