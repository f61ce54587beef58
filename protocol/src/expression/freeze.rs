//! The expressions of Freeze and Thaw, which say who may be granted a lock and grant it to nobody.

use super::{ENDED, Expression};
use crate::lease::Lease;
use crate::request::FrozenRow;
use crate::schema::Schema;

/// How many bytes later writes of the holder may add to the row, beside the reason.
const ROOM: usize = 256;

/// The owner in a row that was made to be frozen.
const NOBODY: &str = "nobody";

impl Expression {
    pub(super) fn freeze(&mut self, row: &FrozenRow, at: u64, reason: &str, schema: &Schema) {
        self.update.push_str("SET freezeReason = :reason, freezeChangedAt = :at");
        self.text(":reason", reason);
        self.number(":at", at);
        match row {
            FrozenRow::Seen(seen) => {
                self.in_existing_row(*seen);
                // DynamoDB must not delete the row, and the freeze with it. It deletes none by a text. The holder will write the
                // reason here, so DynamoDB refuses the freeze where the row has no room for that and for a release.
                if let Some(name) = schema.ttl_name() {
                    self.update.push_str(", #ttl = :room");
                    self.names.push(("#ttl", name.to_owned()));
                    self.text(":room", format!("{reason}{:ROOM$}", ""));
                }
                self.while_no_other_ttl(schema);
                self.remove(&[schema.others_ttl()]);
            }
            FrozenRow::Missing(version) => {
                self.condition.push_str("attribute_not_exists(#pk)");
                self.names.push(("#pk", schema.key_attribute.clone()));
                self.update.push_str(
                    ", ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, isReleased = :released, \
                     leaseEndsAt = :at",
                );
                self.text(":owner", NOBODY);
                self.text(":lease", Lease::new(ENDED, schema.dialect).text());
                self.text(":rvn", version.text());
                self.text(":released", "1");
            }
        }
    }

    pub(super) fn thaw(&mut self, seen: Option<u64>, at: u64) {
        self.in_existing_row(seen);
        self.update.push_str("SET freezeChangedAt = :at REMOVE freezeReason");
        self.number(":at", at);
    }

    /// The condition "the row is there, and nobody has frozen or thawed the lock since". It also refuses each late copy of
    /// an applied change.
    fn in_existing_row(&mut self, seen: Option<u64>) {
        self.condition.push_str("attribute_exists(recordVersionNumber) AND ");
        match seen {
            Some(seen) => {
                self.condition.push_str("freezeChangedAt = :seen");
                self.number(":seen", seen);
            }
            None => self.condition.push_str("attribute_not_exists(freezeChangedAt)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_closed, rendered, value, version};
    use super::*;
    use crate::request::Action;
    use crate::schema::Ttl;
    use crate::value::Value;
    use std::time::Duration;

    fn freeze(row: FrozenRow, schema: &Schema) -> Expression {
        rendered(Action::Freeze { row, at: 6_000, reason: "a deployment".to_owned() }, schema)
    }

    #[test]
    fn a_freeze_follows_the_change_that_was_seen_and_keeps_the_row() {
        let ttl = Ttl { attribute: "expiresAt".to_owned(), retention: Duration::ZERO };
        let schema = Schema { ttl: Some(ttl), ..Schema::default() };
        let first = freeze(FrozenRow::Seen(None), &schema);
        assert_eq!(
            first.condition,
            "attribute_exists(recordVersionNumber) AND attribute_not_exists(freezeChangedAt) AND attribute_not_exists(ttlAttribute)"
        );
        assert_eq!(first.update, "SET freezeReason = :reason, freezeChangedAt = :at, #ttl = :room");
        assert_eq!(first.names, [("#ttl", "expiresAt".to_owned())]);
        assert_closed(&first);

        let next = freeze(FrozenRow::Seen(Some(5_000)), &Schema::default());
        assert_eq!(
            next.condition,
            "attribute_exists(recordVersionNumber) AND freezeChangedAt = :seen AND attribute_not_exists(ttlAttribute)"
        );
        assert_eq!(next.update, "SET freezeReason = :reason, freezeChangedAt = :at REMOVE expiresAt");
        assert_eq!(value(&next, ":seen"), &Value::N("5000".to_owned()));
        assert_closed(&next);
    }

    #[test]
    fn a_freeze_without_a_row_makes_a_released_one() {
        let made = freeze(FrozenRow::Missing(version()), &Schema::default());
        assert_eq!(made.condition, "attribute_not_exists(#pk)");
        assert_eq!(
            made.update,
            "SET freezeReason = :reason, freezeChangedAt = :at, ownerName = :owner, leaseDuration = :lease, \
             recordVersionNumber = :rvn, isReleased = :released, leaseEndsAt = :at"
        );
        assert_eq!(value(&made, ":lease"), &Value::S("1".to_owned()));
        assert_closed(&made);
    }

    #[test]
    fn thaw() {
        let thaw = rendered(Action::Thaw { seen: Some(5_000), at: 6_000 }, &Schema::default());
        assert_eq!(thaw.condition, "attribute_exists(recordVersionNumber) AND freezeChangedAt = :seen");
        assert_eq!(thaw.update, "SET freezeChangedAt = :at REMOVE freezeReason");
        assert_closed(&thaw);
    }
}
