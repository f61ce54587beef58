//! The prefix of all keys of a client, so that clients that share a table can have locks of the same name.

use lambda_lock_protocol::once::NAMESPACE;
use lambda_lock_protocol::{Invalid, LockKey, WAKE, quoted};

/// The prefix of all keys of a client. It is empty, or ends with a slash.
///
/// Because of the slash, no prefix ends in the middle of a name. No part of it is `once`, so a lock of one client is
/// never in the namespace of the idempotent work of another client with a shorter prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyPrefix(String);

impl KeyPrefix {
    /// Returns this prefix with another one behind it.
    pub(crate) fn then(&self, next: &str) -> Result<Self, Invalid> {
        if !next.ends_with('/') {
            return Err(Invalid::new(format!(
                "the key prefix {} must end with a slash, so that it is not the beginning of another name: give one \
                 such as \"blue/\"",
                quoted(next)
            )));
        }
        if next.split_inclusive('/').any(|part| part == NAMESPACE) {
            return Err(Invalid::new(format!(
                "the key prefix {} contains the part {NAMESPACE:?}, which is reserved for the records of idempotent \
                 work: give another name",
                quoted(next)
            )));
        }
        let whole = format!("{}{next}", self.0);
        if whole.starts_with(WAKE) {
            return Err(Invalid::new(format!(
                "the key prefix {} begins with {WAKE:?}, which is reserved for those who sleep until they are woken: give \
                 another name",
                quoted(&whole)
            )));
        }
        if whole.len() >= LockKey::MAX_KEY_BYTES {
            return Err(Invalid::new(format!(
                "the key prefix has {} bytes, but a key with its prefix has at most {}: shorten it",
                whole.len(),
                LockKey::MAX_KEY_BYTES
            )));
        }
        Ok(Self(whole))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the key as it is in the row.
    pub(crate) fn before(&self, key: LockKey) -> LockKey {
        if self.0.is_empty() {
            return key;
        }
        LockKey::new(format!("{}{}", self.0, key.key()), key.sort_key().map(str::to_owned))
    }

    /// Returns the key of idempotent work as it is in the row.
    #[cfg(feature = "once")]
    pub(crate) fn before_work(&self, name: &LockKey) -> LockKey {
        LockKey::new(format!("{}{NAMESPACE}{}", self.0, name.key()), name.sort_key().map(str::to_owned))
    }

    /// Returns what follows the prefix in the key of a row.
    pub(crate) fn behind(&self, row: &LockKey) -> Result<LockKey, Invalid> {
        let behind = row.key().strip_prefix(&self.0).ok_or_else(|| {
            Invalid::new(format!(
                "the lock key {} does not begin with {}, the prefix of this client: use a client with the prefix of \
                 that lock, or without a prefix",
                quoted(row.key()),
                quoted(&self.0)
            ))
        })?;
        Ok(LockKey::new(behind, row.sort_key().map(str::to_owned)))
    }
}
