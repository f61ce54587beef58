//! A lock as the caller passes it around: the crate's token, and the payload beside it.

use crate::deps::Deps;
use lambda_lock::protocol::{LONGEST_LEASE, LONGEST_NAME, LONGEST_SORT_KEY, Lease, Version};
use lambda_lock::{LockKey, SavedLock};
use lambda_lock_functions::{Failure, Fields, seconds_json};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most bytes of `data`, as text. A row can hold 400 KB, which other clients of the crate may use.
pub(crate) const LONGEST_DATA: usize = 32 * 1024;
/// The most bytes of `data` as it stands in an answer: in JSON some characters take six bytes.
const LONGEST_DATA_IN_JSON: usize = 2 * LONGEST_DATA;
/// The most bytes of an answer, as JSON. Step Functions fails a state whose data has more than 256 KB, although
/// the lock is granted by then. Beside `data` there are the key, the sort key and an owner, which may have 2,048,
/// 1,024 and 2,048 bytes, times six.
#[cfg(test)]
pub(crate) const LONGEST_ANSWER: usize = 128 * 1024;

/// A row's payload as it is answered, if it is small enough for that.
pub(crate) fn answerable(data: &[u8]) -> Option<String> {
    // A replacement character is three bytes: no text is shorter than what it stands for.
    let text = (data.len() <= LONGEST_DATA).then(|| String::from_utf8_lossy(data).into_owned());
    text.filter(|text| is_answerable(text))
}

fn is_answerable(text: &str) -> bool {
    text.len() <= LONGEST_DATA && Value::from(text).to_string().len() <= LONGEST_DATA_IN_JSON
}

/// `{"key":…,"owner":…,"version":…,"fencingToken":…,"leaseSeconds":…,"leaseEndsAt":…}`, with `sortKey`
/// and `data` where there are any. The workflow stands on the row: renewal keeps it there and release
/// removes it, so nobody needs to carry it.
#[derive(Debug)]
pub(crate) struct LockJson {
    pub(crate) token: SavedLock,
    /// What the row's payload was when the lock was acquired. It is only passed on: the row keeps its
    /// own.
    pub(crate) data: Option<String>,
}

impl LockJson {
    /// Reads the field `lock`, as it was answered: its key has no prefix.
    pub(crate) fn read(request: &mut Fields, deps: &Deps) -> Result<Self, Failure> {
        let mut fields = request.object("lock", "lock.")?;
        let key = deps.row(&key(&mut fields, deps)?);
        let owner = fields.name("owner", LONGEST_NAME)?;
        let version = fields.text("version")?;
        if Version::parse(&version).is_none() {
            return Err(fields.malformed("version", "give the lock exactly as it was answered"));
        }
        let fencing_token = fields.whole_number("fencingToken")?;
        let (lease, ends) = (lease(&mut fields)?, fields.whole_number("leaseEndsAt")?);
        let token = SavedLock::from_parts(key, owner, version, fencing_token, lease, ends, None);
        let data = fields.optional_text("data")?;
        if !data.as_deref().is_none_or(is_answerable) {
            return Err(fields.malformed("data", "give the lock exactly as it was answered"));
        }
        fields.nothing_else()?;
        Ok(Self { token, data })
    }

    /// Writes it down.
    pub(crate) fn json(&self, deps: &Deps) -> Value {
        let token = &self.token;
        let key = token.key();
        let mut json = json!({
            "key": key.key().strip_prefix(deps.locks.key_prefix()),
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

/// The key as it is in requests and answers, without a prefix.
pub(crate) fn key(fields: &mut Fields, deps: &Deps) -> Result<LockKey, Failure> {
    Ok(LockKey::new(fields.name("key", deps.longest_key())?, sort_key(fields, deps.sort_key)?))
}

/// The sort key: required where the table has one, refused where it has none.
fn sort_key(fields: &mut Fields, with_sort_key: bool) -> Result<Option<String>, Failure> {
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
