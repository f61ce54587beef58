//! The names of a lock's attributes in its table.

use super::invalid::Invalid;
use super::lease::Dialect;
use std::time::Duration;

/// Declares the names of attributes, and the list of all of them.
macro_rules! attributes {
    ($($(#[$doc:meta])* $visibility:vis const $name:ident = $text:literal;)*) => {
        $($(#[$doc])* $visibility const $name: &str = $text;)*

        /// All of them.
        const OWN: [&str; [$($name),*].len()] = [$($name),*];
    };
}

attributes! {
    /// Who holds the lock, or held it last.
    pub const OWNER = "ownerName";
    /// How long a version must be seen unchanged before its holder is dead.
    pub const LEASE = "leaseDuration";
    /// The version ("RVN"), which every write changes.
    pub const VERSION = "recordVersionNumber";
    /// Present on a released row.
    pub const RELEASED = "isReleased";
    /// The optional payload.
    pub const DATA = "data";
    /// The fencing token of the newest grant.
    pub const TOKEN = "fencingToken";
    /// When the lease ends, by the writer's wall clock.
    pub const ENDS = "leaseEndsAt";
    /// The workflow that holds the lock.
    pub const WORKFLOW = "workflow";
    /// The names of the additional attributes that grants of this crate wrote.
    pub const ATTRIBUTE_NAMES = "attributeNames";

    /// Why the lock was last broken.
    pub const BREAK_REASON = "breakReason";
    /// The version that was last broken. While the row still has it, the lock is free because it was broken.
    pub const BROKEN_VERSION = "brokenVersion";
    /// Why the lock is frozen. Present only while it is.
    pub const FREEZE_REASON = "freezeReason";
    /// When the lock was last frozen or thawed, in epoch milliseconds. Grows with each of them.
    pub const FREEZE_CHANGED_AT = "freezeChangedAt";
    /// The last ticket that was given to a caller who waits in line.
    pub const LAST_TICKET = "lastTicket";
    /// The last ticket that was served: the one of the newest grant by ticket.
    pub const SERVED_TICKET = "servedTicket";
    /// The last ticket of a caller that sleeps until it is woken.
    pub const LAST_SLEEPER = "lastSleeper";
    /// The set of the tickets whose callers have given up.
    pub const LEFT_TICKETS = "leftTickets";
    /// For how long holders have held the lock, in rows of before.
    const HELD_MILLIS = "heldMillis";
    /// How far that differed, in rows of before.
    const HELD_SPREAD = "heldSpread";
    /// The name of the TTL attribute in the row, where it is not [`DEFAULT_TTL`].
    pub const TTL_NAME = "ttlAttribute";
    /// Why idempotent work that failed for good was last reset.
    pub const RESET_REASON = "resetReason";

    /// How many attempts idempotent work has had.
    pub const ATTEMPTS = "attempts";
    /// When idempotent work was first requested, in epoch milliseconds.
    pub const FIRST_SEEN = "firstSeenAt";
    /// Until when the record of idempotent work counts, in epoch milliseconds.
    pub const KEPT_UNTIL = "keptUntilAt";
    /// The SHA-256 of the payload of idempotent work, in hexadecimal.
    pub const PAYLOAD = "payloadHash";
    /// `done` or `failed`, once idempotent work is settled.
    pub const STATE = "onceState";
    /// The result or the failure of idempotent work, as JSON.
    pub const OUTCOME = "outcome";
    /// When idempotent work was settled, in epoch milliseconds.
    pub const OUTCOME_AT = "outcomeAt";
}

/// What rows had before, to say for how long holders hold the lock. Whoever takes a ticket removes it.
pub const FORMER: [&str; 2] = [HELD_MILLIS, HELD_SPREAD];

/// The TTL attribute of the stack's table. A row that has it says nothing more about its TTL.
pub const DEFAULT_TTL: &str = "expiresAt";

/// The default of how long an idle row is kept, where a TTL attribute is written.
pub const DEFAULT_TTL_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The table's own names, and the dialect in which this client writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The name of the partition key attribute. The default is `key`.
    pub key_attribute: String,
    /// The name of the sort key attribute, where the table has one. The default is none.
    pub sort_key_attribute: Option<String>,
    /// The TTL attribute, by which DynamoDB deletes idle rows. The default is none.
    pub ttl: Option<Ttl>,
    /// How `leaseDuration` is written. The default is Java's dialect.
    pub dialect: Dialect,
}

/// The opt-in TTL attribute. It only removes idle rows, and is never part of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ttl {
    pub attribute: String,
    /// How long a row stays after its lease ended.
    pub retention: Duration,
}

impl Ttl {
    /// The attribute's value for a lease that ends at this epoch millisecond: epoch seconds, rounded up, so that it
    /// is never earlier than lease end + retention.
    pub(crate) fn expires_at(&self, ends_at_ms: u64) -> u64 {
        let retention = self.retention.as_nanos().div_ceil(1_000_000_000);
        ends_at_ms.div_ceil(1000).saturating_add(u64::try_from(retention).unwrap_or(u64::MAX))
    }

    /// The attribute's value for a record that counts until this epoch millisecond: epoch seconds, rounded up.
    pub(crate) fn expires_after(kept_until: u64) -> u64 {
        kept_until.div_ceil(1000)
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self { key_attribute: "key".to_owned(), sort_key_attribute: None, ttl: None, dialect: Dialect::default() }
    }
}

impl Schema {
    /// Checks that each name is usable in DynamoDB, is not one of ours, and is given only once.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut names = vec![("key attribute", self.key_attribute.as_str())];
        names.extend(self.sort_key_attribute.as_deref().map(|name| ("sort key attribute", name)));
        names.extend(self.ttl.as_ref().map(|ttl| ("TTL attribute", ttl.attribute.as_str())));
        for (position, (what, name)) in names.iter().enumerate() {
            if name.is_empty() || name.len() > 255 {
                return Err(Invalid::new(format!(
                    "the {what} must have a name of 1 to 255 bytes, but it has {} bytes",
                    name.len()
                )));
            }
            if OWN.contains(name) {
                return Err(Invalid::new(format!(
                    "the {what} cannot be called {name:?}: the lock record uses that name itself (it uses {}); choose another name",
                    OWN.join(", ")
                )));
            }
            if let Some((other, _)) = names[..position].iter().find(|(_, earlier)| earlier == name) {
                return Err(Invalid::new(format!(
                    "the {what} and the {other} are both called {name:?}: choose two different names"
                )));
            }
        }
        Ok(())
    }

    /// The names that no additional attribute may have: those of the record, of the table's keys and of the TTL.
    pub(super) fn reserved(&self) -> impl Iterator<Item = &str> {
        let keys = [Some(self.key_attribute.as_str()), self.sort_key_attribute.as_deref()];
        OWN.into_iter().chain(keys.into_iter().flatten()).chain([DEFAULT_TTL]).chain(self.named_ttl())
    }

    /// The name of the TTL attribute.
    pub fn ttl_name(&self) -> Option<&str> {
        self.ttl.as_ref().map(|ttl| ttl.attribute.as_str())
    }

    /// The name of the TTL attribute, where a row must say it.
    pub(super) fn named_ttl(&self) -> Option<&str> {
        self.ttl_name().filter(|name| *name != DEFAULT_TTL)
    }

    /// The TTL attribute that other clients may have left in a row, unless it is the own one.
    pub(super) fn others_ttl(&self) -> Option<&'static str> {
        let own = [Some(self.key_attribute.as_str()), self.sort_key_attribute.as_deref(), self.ttl_name()];
        Some(DEFAULT_TTL).filter(|name| !own.contains(&Some(name)))
    }

    pub(super) fn reserves(&self, name: &str) -> bool {
        self.reserved().any(|reserved| reserved == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(key: &str, sort: Option<&str>, ttl: Option<&str>) -> Schema {
        Schema {
            key_attribute: key.to_owned(),
            sort_key_attribute: sort.map(str::to_owned),
            ttl: ttl.map(|name| Ttl { attribute: name.to_owned(), retention: DEFAULT_TTL_RETENTION }),
            dialect: Dialect::Java,
        }
    }

    #[test]
    fn reserved_and_clashing_attribute_names_are_refused() {
        assert!(named("pk", Some("sk"), Some("ttl")).check().is_ok());
        assert!(Schema::default().check().is_ok());
        for own in OWN {
            assert!(named(own, None, None).check().is_err(), "{own}");
            assert!(named("pk", Some(own), None).check().is_err(), "{own}");
            assert!(named("pk", None, Some(own)).check().is_err(), "{own}");
        }
        assert!(named("x", Some("x"), None).check().is_err());
        assert!(named("x", None, Some("x")).check().is_err());
        assert!(named("x", Some("y"), Some("y")).check().is_err());
        assert!(named("", None, None).check().is_err());
        assert!(named(&"n".repeat(256), None, None).check().is_err());
    }

    #[test]
    fn ttl_is_in_seconds_and_never_before_lease_end_and_retention() {
        let ttl = Ttl { attribute: "expiresAt".to_owned(), retention: Duration::from_millis(1_500) };
        assert_eq!(ttl.expires_at(10_001), 11 + 2);
    }
}
