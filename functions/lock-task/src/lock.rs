//! A lock in the form that the caller passes around: the saved lock of the crate, and the payload.

use crate::deps::Deps;
use crate::time::epoch_millis;
use crate::trust::NotOurs;
use lambda_lock::{LockKey, MAX_LEASE, MAX_NAME_BYTES, SavedLock, SavedLockSet};
use lambda_lock_functions::{Failure, Fields, seconds_json};
use lambda_lock_protocol::once::NAMESPACE;
use lambda_lock_protocol::{Lease, Version, WAKE};
use serde_json::{Value, json};
use std::time::Duration;

/// The most bytes of `data`, as text. A row can hold up to 400 KB, which other clients of the crate may use.
pub(crate) const MAX_DATA_BYTES: usize = 32 * 1024;
/// The most bytes of additional attributes, names and values together.
pub(crate) const MAX_ATTRIBUTES_BYTES: usize = 4 * 1024;
/// The most bytes of `data` in a response. In JSON some characters take six bytes.
const MAX_DATA_IN_JSON: usize = 2 * MAX_DATA_BYTES;
/// The most bytes of a response, as JSON. Step Functions fails a state whose data has more than 256 KB, although
/// the lock is already granted then. Besides `data` a response has the key, the sort key and an owner. They may
/// have 2,048, 1,024 and 2,048 bytes, times six in JSON.
#[cfg(test)]
pub(crate) const MAX_ANSWER_BYTES: usize = 128 * 1024;

/// Returns a row's payload as text, if it is small enough for a response.
pub(crate) fn answerable(data: &[u8]) -> Option<String> {
    // A replacement character has three bytes, so the text is never shorter than the payload.
    let text = (data.len() <= MAX_DATA_BYTES).then(|| String::from_utf8_lossy(data).into_owned());
    text.filter(|text| is_answerable(text))
}

fn is_answerable(text: &str) -> bool {
    text.len() <= MAX_DATA_BYTES && Value::from(text).to_string().len() <= MAX_DATA_IN_JSON
}

/// The largest number up to which each whole number is one of JSONata and JavaScript.
const MAX_EXACT: u64 = 1 << 53;
/// The field with the fencing token as a text, where JSONata and JavaScript would round it.
const EXACT_TOKEN: &str = "exactFencingToken";

/// `{"key":…,"owner":…,"version":…,"fencingToken":…,"leaseSeconds":…,"leaseEndsAt":…}`, with `sortKey`, `data` and
/// `exactFencingToken` if there are any. The workflow is not part of it, because it is in the row: a renewal keeps it there, and a
/// release removes it.
#[derive(Debug)]
pub(crate) struct LockJson {
    pub(crate) token: SavedLock,
    /// The row's payload when the lock was acquired. It is only passed on, and never changes the row.
    pub(crate) data: Option<String>,
}

/// What the field `lock` has: one lock, or `{"locks":[…],"fencingToken":…,"leaseEndsAt":…}` for several that were
/// acquired together.
#[derive(Debug)]
pub(crate) enum Locks {
    One(LockJson),
    Set(Vec<LockJson>),
}

impl Locks {
    /// Reads the field `lock`, in the form that an earlier response had. Keys have no prefix.
    pub(crate) fn read(request: &mut Fields, deps: &Deps) -> Result<Self, Failure> {
        let mut fields = request.object("lock", "lock.")?;
        if !fields.has("locks") {
            return LockJson::read(fields, deps).map(Self::One);
        }
        let locks = fields.objects("locks", "lock.locks.")?;
        // They are those of the locks.
        let _ = (fencing_token(&mut fields)?, fields.whole_number("leaseEndsAt")?);
        fields.nothing_else()?;
        locks.into_iter().map(|lock| LockJson::read(lock, deps)).collect::<Result<_, _>>().map(Self::Set)
    }

    /// A set that is held.
    pub(crate) fn of_set(saved: &SavedLockSet) -> Self {
        Self::Set(saved.locks().iter().map(|token| LockJson { token: token.clone(), data: None }).collect())
    }

    /// The row's key, of several locks that of the first one.
    pub(crate) fn row(&self) -> Option<LockKey> {
        match self {
            Self::One(lock) => Some(lock.token.key()),
            Self::Set(locks) => locks.first().map(|lock| lock.token.key()),
        }
    }

    /// Returns the field as JSON. Keys have no prefix.
    pub(crate) fn json(&self, deps: &Deps) -> Value {
        match self {
            Self::One(lock) => lock.json(deps),
            Self::Set(locks) => {
                let token = locks.first().map(|lock| lock.token.fencing_token());
                let mut json = json!({
                    "locks": locks.iter().map(|lock| lock.json(deps)).collect::<Vec<_>>(),
                    "fencingToken": token,
                    "leaseEndsAt": locks.iter().filter_map(|lock| lock.token.lease_ends_at()).min().map(epoch_millis),
                });
                if let Some(token) = token.filter(|token| *token > MAX_EXACT) {
                    json[EXACT_TOKEN] = token.to_string().into();
                }
                json
            }
        }
    }
}

/// The saved locks of a set.
pub(crate) fn saved_set(locks: Vec<LockJson>) -> SavedLockSet {
    SavedLockSet::from_locks(locks.into_iter().map(|lock| lock.token).collect())
}

impl LockJson {
    /// Reads one lock. Its key has no prefix.
    fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let key = deps.row(&key(&mut fields, deps)?);
        let owner = fields.name("owner", MAX_NAME_BYTES)?;
        let version = fields.text("version")?;
        if Version::parse(&version).is_none() {
            return Err(fields.malformed("version", "send the lock exactly as it was returned"));
        }
        let fencing_token = fencing_token(&mut fields)?;
        let (lease, ends) = (lease(&mut fields, MAX_LEASE)?, fields.whole_number("leaseEndsAt")?);
        let token = SavedLock::from_parts(key, owner, version, fencing_token, lease, ends, None);
        let hmac = fields.optional_text("hmac")?;
        deps.trust.verify(|| content(&token), hmac.as_deref()).map_err(|not_ours| match not_ours {
            NotOurs::Missing => fields.malformed("hmac", "it is missing; send the lock exactly as it was returned"),
            NotOurs::Wrong => fields.malformed("hmac", "send the lock exactly as it was returned"),
        })?;
        // A longer lease on the row stays. A caller's word does not make it longer.
        let lease = lease.min(deps.trust.longest_lease);
        let (key, owner, version) = (token.key(), token.owner().to_owned(), token.version().to_owned());
        let token = SavedLock::from_parts(key, owner, version, fencing_token, lease, ends, None);
        let data = fields.optional_text("data")?;
        if !data.as_deref().is_none_or(is_answerable) {
            return Err(fields.malformed("data", "send the lock exactly as it was returned"));
        }
        fields.nothing_else()?;
        Ok(Self { token, data })
    }

    /// Returns the lock as JSON. Its key has no prefix.
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
        if token.fencing_token() > MAX_EXACT {
            json[EXACT_TOKEN] = token.fencing_token().to_string().into();
        }
        if let Some(sort_key) = key.sort_key() {
            json["sortKey"] = sort_key.into();
        }
        if let Some(hmac) = deps.trust.hmac(|| content(token)) {
            json["hmac"] = hmac.into();
        }
        if let Some(data) = &self.data {
            json["data"] = data.as_str().into();
        }
        json
    }
}

/// Takes the fencing token. JSONata and JavaScript have rounded a large one, which the text beside it shows.
fn fencing_token(fields: &mut Fields) -> Result<u64, Failure> {
    let exact = fields.optional_text(EXACT_TOKEN)?;
    // A rounded number may be written with an exponent.
    let Some(exact) = exact else { return fields.whole_number("fencingToken") };
    let number = fields.take("fencingToken").and_then(|number| number.as_f64());
    let token = exact.parse().ok().filter(|token| *token > MAX_EXACT && number == Some(*token as f64));
    token.ok_or_else(|| fields.malformed(EXACT_TOKEN, "send the lock exactly as it was returned"))
}

/// What the HMAC of a lock is of. The key is that of the row, so a lock of one prefix is none of another.
fn content(token: &SavedLock) -> Value {
    let key = token.key();
    let ends = token.lease_ends_at().map(epoch_millis);
    let (owner, version, fencing_token) = (token.owner(), token.version(), token.fencing_token());
    json!(["lock", key.key(), key.sort_key(), owner, version, fencing_token, seconds_json(token.lease()), ends])
}

/// Takes the key and the sort key, as they are in requests and responses. The key has no prefix.
pub(crate) fn key(fields: &mut Fields, deps: &Deps) -> Result<LockKey, Failure> {
    Ok(LockKey::new(fields.name("key", deps.longest_key())?, sort_key(fields, deps.sort_key)?))
}

/// Takes the key and the sort key of a lock that is to be acquired.
pub(crate) fn new_key(fields: &mut Fields, deps: &Deps) -> Result<LockKey, Failure> {
    let key = key(fields, deps)?;
    check_key(fields, "key", key.key())?;
    key.sort_key().map_or(Ok(()), |sort_key| resolved(fields, "sortKey", sort_key))?;
    Ok(key)
}

/// Refuses a key that no lock has.
pub(crate) fn check_key(fields: &Fields, field: &str, key: &str) -> Result<(), Failure> {
    match [NAMESPACE, WAKE].into_iter().find(|reserved| key.starts_with(reserved)) {
        Some(reserved) => {
            Err(fields.malformed(field, &format!("no lock has a key that begins with {reserved}; give another key")))
        }
        None => resolved(fields, field, key),
    }
}

/// Refuses a template that nobody has resolved: all callers would share it.
pub(crate) fn resolved(fields: &Fields, field: &str, text: &str) -> Result<(), Failure> {
    let has = |begin: &str, end| text.split_once(begin).is_some_and(|(_, rest)| rest.contains::<&str>(end));
    let hint = if has("{%", "%}") {
        "Step Functions resolves {% … %} only as the whole text, in a state whose QueryLanguage is JSONata"
    } else if ["$.", "$$.", "$[", "States."].iter().any(|path| text.starts_with(path)) {
        "Step Functions resolves a path only in a field whose name ends with .$, and with JSONata none"
    } else if has("${", "}") {
        "whoever sends the request, such as a shell, a template or a program, has to put a value in the place of ${…}"
    } else {
        return Ok(());
    };
    Err(fields
        .malformed(field, &format!("it is a template that was not resolved, so all callers would share it: {hint}")))
}

/// Takes the sort key. It is required if the table has one, and refused if not.
fn sort_key(fields: &mut Fields, with_sort_key: bool) -> Result<Option<String>, Failure> {
    match (with_sort_key, fields.has("sortKey")) {
        (true, _) => fields.name("sortKey", LockKey::MAX_SORT_KEY_BYTES).map(Some),
        (false, false) => Ok(None),
        (false, true) => Err(fields.malformed("sortKey", "the lock table has no sort key; remove it")),
    }
}

/// Takes `leaseSeconds` and checks that it is a valid lease, and not longer than this.
pub(crate) fn lease(fields: &mut Fields, longest: Duration) -> Result<Duration, Failure> {
    let lease = fields.seconds("leaseSeconds")?;
    if lease > longest || Lease::check(lease).is_err() {
        let hint = format!("give more than 0 and at most {} seconds", longest.as_secs());
        return Err(fields.malformed("leaseSeconds", &hint));
    }
    Ok(lease)
}
