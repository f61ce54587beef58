//! The key of a lock: a partition key and, where the table has one, a sort key.

use super::invalid::Invalid;
use std::fmt;

/// The prefix of every key of idempotent work.
pub const NAMESPACE: &str = "once/";

/// The prefix of every key of a wake item: how to wake a caller that sleeps until it is its turn. Behind it stand the key of the
/// lock and the ticket.
pub const WAKE: &str = "wake/";

/// The key of a lock: the values of the table's key attributes.
///
/// A string is the key of a lock in a table without a sort key. A pair is partition key and sort key:
///
/// ```
/// # use lambda_lock_protocol as lambda_lock;
/// use lambda_lock::LockKey;
/// let plain: LockKey = "customer-7".into();
/// let composite: LockKey = ("customer-7", "invoice-12").into();
/// assert_ne!(plain, composite);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockKey {
    key: String,
    sort_key: Option<String>,
}

impl LockKey {
    /// The longest partition key that DynamoDB accepts, in bytes of UTF-8.
    pub const MAX_KEY_BYTES: usize = 2048;
    /// The longest sort key that DynamoDB accepts, in bytes of UTF-8.
    pub const MAX_SORT_KEY_BYTES: usize = 1024;

    /// Makes a key from its parts.
    pub fn new(key: impl Into<String>, sort_key: Option<String>) -> Self {
        Self { key: key.into(), sort_key }
    }

    /// The partition key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The sort key.
    pub fn sort_key(&self) -> Option<&str> {
        self.sort_key.as_deref()
    }

    /// Checks what DynamoDB would refuse. Also checks that there is a sort key exactly where the table has one.
    pub(crate) fn check(&self, table_has_sort_key: bool) -> Result<(), Invalid> {
        check_part("lock key", &self.key, Self::MAX_KEY_BYTES)?;
        match (&self.sort_key, table_has_sort_key) {
            (Some(sort_key), true) => check_part("sort key", sort_key, Self::MAX_SORT_KEY_BYTES),
            (None, false) => Ok(()),
            (None, true) => Err(Invalid::new(format!(
                "the lock key {:?} has no sort key, but this client is configured with a sort key attribute: \
                 give a pair, (key, sort_key)",
                self.key
            ))),
            (Some(_), false) => Err(Invalid::new(format!(
                "the lock key {:?} has a sort key, but this client is configured without a sort key attribute: \
                 set one with sort_key_attribute, or give the key alone",
                self.key
            ))),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.sort_key.as_ref().map_or(0, String::len)
    }
}

fn check_part(what: &str, text: &str, longest: usize) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(format!("the {what} is empty: give 1 to {longest} bytes of text")));
    }
    if text.len() > longest {
        return Err(Invalid::new(format!(
            "the {what} has {} bytes, but DynamoDB accepts at most {longest}: shorten it, or use a hash of it",
            text.len()
        )));
    }
    Ok(())
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sort_key {
            None => f.write_str(&self.key),
            Some(sort_key) => write!(f, "({}, {sort_key})", self.key),
        }
    }
}

impl From<&str> for LockKey {
    fn from(key: &str) -> Self {
        Self::new(key, None)
    }
}

impl From<String> for LockKey {
    fn from(key: String) -> Self {
        Self::new(key, None)
    }
}

impl From<&String> for LockKey {
    fn from(key: &String) -> Self {
        Self::new(key.as_str(), None)
    }
}

impl From<&LockKey> for LockKey {
    fn from(key: &LockKey) -> Self {
        key.clone()
    }
}

impl<K: Into<String>, S: Into<String>> From<(K, S)> for LockKey {
    fn from((key, sort_key): (K, S)) -> Self {
        Self::new(key, Some(sort_key.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_dynamodb_would_refuse_are_refused_before_any_request() {
        assert!(LockKey::from("").check(false).is_err());
        assert!(LockKey::from("k".repeat(2048)).check(false).is_ok());
        assert!(LockKey::from("k".repeat(2049)).check(false).is_err());
        assert!(LockKey::from("ü".repeat(1025)).check(false).is_err(), "bytes count, not characters");
        assert!(LockKey::from(("k", "")).check(true).is_err());
        assert!(LockKey::from(("k", "s".repeat(1024))).check(true).is_ok());
        assert!(LockKey::from(("k", "s".repeat(1025))).check(true).is_err());
    }

    #[test]
    fn a_sort_key_is_asked_for_exactly_where_the_table_has_one() {
        assert!(LockKey::from("k").check(true).is_err());
        assert!(LockKey::from(("k", "s")).check(false).is_err());
    }

    #[test]
    fn composite_keys_do_not_collide() {
        assert_ne!(LockKey::from(("a", "bc")), LockKey::from(("ab", "c")));
        assert_ne!(LockKey::from(("a", "bc")).to_string(), LockKey::from(("ab", "c")).to_string());
    }
}
