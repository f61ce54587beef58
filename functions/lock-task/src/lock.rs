//! A lock as the caller passes it around: the crate's token, and the payload beside it.

use lambda_lock::LockToken;
use lambda_lock::protocol::{LONGEST_KEY, LONGEST_LEASE, LONGEST_NAME, LONGEST_SORT_KEY, Lease, Version};
use lambda_lock_functions::{Failure, Fields, seconds_json};
use serde_json::{Map, Value};
use std::time::Duration;

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
        let mut token = Map::new();
        token.insert("key".to_owned(), fields.name("key", LONGEST_KEY)?.into());
        if let Some(sort_key) = sort_key(&mut fields, with_sort_key)? {
            token.insert("sortKey".to_owned(), sort_key.into());
        }
        token.insert("owner".to_owned(), fields.name("owner", LONGEST_NAME)?.into());
        let version = fields.text("version")?;
        if Version::parse(&version).is_none() {
            return Err(fields.malformed("version", "give the lock exactly as it was answered"));
        }
        token.insert("version".to_owned(), version.into());
        token.insert("fencingToken".to_owned(), fields.whole_number("fencingToken")?.into());
        token.insert("leaseSeconds".to_owned(), lease(&mut fields)?.as_secs_f64().into());
        token.insert("leaseEndsAt".to_owned(), fields.whole_number("leaseEndsAt")?.into());
        let data = fields.optional_text("data")?;
        fields.nothing_else()?;
        let token = serde_json::from_value(Value::Object(token))
            .map_err(|error| Failure::invalid_request(format!("lock is malformed: {error}")))?;
        Ok(Self { token, data })
    }

    /// Writes it down.
    pub(crate) fn json(&self) -> Result<Value, Failure> {
        let mut json = serde_json::to_value(&self.token)
            .map_err(|error| Failure::invalid_request(format!("lock cannot be written as JSON: {error}")))?;
        json["leaseSeconds"] = seconds_json(self.token.lease());
        if let Some(lock) = json.as_object_mut() {
            lock.remove("workflow");
        }
        if let Some(data) = &self.data {
            json["data"] = data.as_str().into();
        }
        Ok(json)
    }
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
