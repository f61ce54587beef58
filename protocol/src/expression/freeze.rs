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
