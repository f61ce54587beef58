//! What every decision needs to know about the table and the clocks.

use super::attributes::{self, Attribute, AttributesChange, MAX_ATTRIBUTE_NAME_BYTES, MAX_ATTRIBUTES};
use super::clock_bounds::ClockBounds;
use super::invalid::Invalid;
use super::key::{LockKey, NAMESPACE, WAKE};
use super::lease::Lease;
use super::record::quoted;
use super::request::{DataChange, StoredOutcome};
use super::schema::Schema;
use std::time::Duration;

/// The largest item that DynamoDB accepts, in bytes, names included.
pub const MAX_ITEM_BYTES: usize = 400 * 1024;
/// The longest name of an owner or a workflow, in bytes. The ARN of a state machine's execution is much shorter.
pub const MAX_NAME_BYTES: usize = 2048;
/// The length of the suffix that makes the owner of each acquire unique: a slash and 8 digits.
const OWNER_DIGITS: usize = 9;
/// The size of all names and of the attributes of fixed size, rounded up generously.
const FIXED_BYTES: usize = 1024;

/// Names, dialect and clock bounds. They are the same for all locks of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub schema: Schema,
    pub clock_bounds: ClockBounds,
}

impl Settings {
    pub(crate) fn lease(&self, duration: Duration) -> Lease {
        Lease::new(duration, self.schema.dialect)
    }

    /// Checks the names, and that a row outlives its lease although its writer's wall clock may be behind.
    pub fn check(&self) -> Result<(), Invalid> {
        self.schema.check()?;
        let skew = self.clock_bounds.allowed_skew();
        match &self.schema.ttl {
            Some(ttl) if ttl.retention < skew => Err(Invalid::new(format!(
                "the ttl_retention of {:?} is shorter than the max_clock_skew of {skew:?}, so that DynamoDB could delete the row \
                 of a lock that is held: give a longer ttl_retention",
                ttl.retention
            ))),
            _ => Ok(()),
        }
    }

    /// Checks a key against the table's key attributes.
    pub fn check_key(&self, key: &LockKey) -> Result<(), Invalid> {
        key.check(self.schema.sort_key_attribute.is_some())
    }

    /// Checks the key of a plain lock, which must not be in the namespace of idempotent work, nor among the wake items.
    pub fn check_lock_key(&self, key: &LockKey) -> Result<(), Invalid> {
        if key.key().starts_with(NAMESPACE) {
            return Err(Invalid::new(format!(
                "the lock key {} begins with {NAMESPACE:?}, which is reserved for the records of idempotent work: \
                 give the lock another key, or use once for that work",
                quoted(key.key())
            )));
        }
        if key.key().starts_with(WAKE) {
            return Err(Invalid::new(format!(
                "the lock key {} begins with {WAKE:?}, which is reserved for those who sleep until they are woken: give the \
                 lock another key",
                quoted(key.key())
            )));
        }
        self.check_key(key)
    }

    /// Checks that the outcome fits into the record of idempotent work.
    pub fn check_outcome(&self, key: &LockKey, owner: &str, outcome: &StoredOutcome) -> Result<(), Invalid> {
        // The reasons of a break and of a reset stay in the record.
        let around = key.bytes() + owner.len() + FIXED_BYTES + 2 * MAX_NAME_BYTES;
        let bytes = outcome.json().len();
        if bytes + around > MAX_ITEM_BYTES {
            return Err(Invalid::new(format!(
                "the result has {bytes} bytes as JSON and its record may need {around} more, but DynamoDB accepts items of \
                 at most {MAX_ITEM_BYTES} bytes: store the result elsewhere, and a reference to it here"
            )));
        }
        Ok(())
    }

    /// Checks that DynamoDB deletes no record of idempotent work while an attempt does the work, although the wall clock of its
    /// holder may be behind.
    pub fn check_keep(&self, keep: Duration) -> Result<(), Invalid> {
        let skew = self.clock_bounds.allowed_skew();
        if self.schema.ttl.is_some() && keep < skew {
            return Err(Invalid::new(format!(
                "the keep_for of {keep:?} is shorter than the max_clock_skew of {skew:?}, so that DynamoDB could delete the record \
                 of work that is under way by its TTL: give at least {skew:?}"
            )));
        }
        Ok(())
    }

    /// Checks a prefix of owner names. Each name is longer by a few digits.
    pub fn check_owner_prefix(&self, name: &str) -> Result<(), Invalid> {
        check_name_of_at_most("owner", name, MAX_NAME_BYTES - OWNER_DIGITS)
    }

    /// Checks why a lock is broken.
    pub fn check_reason(&self, reason: &str) -> Result<(), Invalid> {
        check_name("reason", reason)
    }

    /// Checks that a write fits into the row.
    pub fn check_write(
        &self,
        key: &LockKey,
        owner: &str,
        workflow: Option<&str>,
        data: &DataChange,
    ) -> Result<(), Invalid> {
        self.check_grant(key, owner, workflow, data, &AttributesChange::Keep)
    }

    /// Checks that a grant with these additional attributes fits into the row.
    pub fn check_grant(
        &self,
        key: &LockKey,
        owner: &str,
        workflow: Option<&str>,
        data: &DataChange,
        attributes: &AttributesChange,
    ) -> Result<(), Invalid> {
        let attributes = match attributes {
            AttributesChange::Keep => 0,
            AttributesChange::Replace(given) => self.check_attributes(given)?,
        };
        self.check_key(key)?;
        check_name("owner", owner)?;
        workflow.map_or(Ok(()), |workflow| check_name("workflow", workflow))?;
        let payload = if let DataChange::Set(bytes) = data { bytes.len() } else { 0 };
        let size = payload + attributes + key.bytes() + owner.len() + workflow.map_or(0, str::len) + FIXED_BYTES;
        if size > MAX_ITEM_BYTES {
            return Err(Invalid::new(format!(
                "the lock's row may need {size} bytes with {payload} bytes of data and {attributes} of additional \
                 attributes, but DynamoDB accepts items of at most {MAX_ITEM_BYTES} bytes: store large data elsewhere, \
                 and a reference to it here"
            )));
        }
        Ok(())
    }

    /// Checks additional attributes. Returns how many bytes they take, with the list of their names.
    fn check_attributes(&self, given: &[(String, Attribute)]) -> Result<usize, Invalid> {
        if given.len() > MAX_ATTRIBUTES {
            return Err(Invalid::new(format!(
                "a lock has at most {MAX_ATTRIBUTES} additional attributes, but {} were given: put several values \
                 into one text",
                given.len()
            )));
        }
        for (name, value) in given {
            if !attributes::is_name(name) {
                return Err(Invalid::new(format!(
                    "an additional attribute must have a name of 1 to {MAX_ATTRIBUTE_NAME_BYTES} bytes without a comma, \
                     but {} was given: choose another name",
                    quoted(name)
                )));
            }
            if self.schema.reserves(name) {
                let reserved: Vec<_> = self.schema.reserved().collect();
                return Err(Invalid::new(format!(
                    "an additional attribute cannot be called {name:?}: the lock record or its table uses that name \
                     itself (they use {}); choose another name",
                    reserved.join(", ")
                )));
            }
            if !value.is_valid() {
                return Err(Invalid::new(format!(
                    "the additional attribute {} is not a number that DynamoDB stores: give at most 38 digits, from \
                     1E-130 to 9.9E+125, or give it as a text",
                    quoted(name)
                )));
            }
        }
        // The list has each name once more, and a comma.
        Ok(given.iter().map(|(name, value)| 2 * name.len() + 1 + value.bytes()).sum())
    }
}

fn check_name(what: &str, name: &str) -> Result<(), Invalid> {
    check_name_of_at_most(what, name, MAX_NAME_BYTES)
}

fn check_name_of_at_most(what: &str, name: &str, longest: usize) -> Result<(), Invalid> {
    if name.is_empty() || name.len() > longest {
        return Err(Invalid::new(format!(
            "the {what} must have 1 to {longest} bytes, but it has {}: give a name that people recognise",
            name.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_dynamodb_would_refuse_are_refused_before_any_request() {
        let check = |owner: &str, bytes: usize| {
            Settings::default().check_write(&"k".into(), owner, None, &DataChange::Set(vec![0; bytes]))
        };
        assert!(check("me", MAX_ITEM_BYTES - 2 * FIXED_BYTES).is_ok());
        assert!(check("me", MAX_ITEM_BYTES).is_err());
        assert!(check("", 1).is_err());
        assert!(check(&"o".repeat(2049), 1).is_err());
    }

    #[test]
    fn names_and_values_of_additional_attributes_count_towards_the_size_of_the_item() {
        let check = |name: &str, bytes: usize, data: usize| {
            let attributes = AttributesChange::Replace(vec![(name.to_owned(), "v".repeat(bytes).into())]);
            let data = DataChange::Set(vec![0; data]);
            Settings::default().check_grant(&"k".into(), "me", None, &data, &attributes)
        };
        let most = MAX_ITEM_BYTES - FIXED_BYTES - "k".len() - "me".len();
        // The name is in the item twice.
        assert!(check("name", most - 9, 0).is_ok());
        assert!(check("name", most - 8, 0).is_err());
        assert!(check("name", most - 8 - 500, 500).is_err());
        assert!(check(&"n".repeat(255), most - 511, 0).is_ok());
        assert!(check(&"n".repeat(255), most - 510, 0).is_err());
    }
}
