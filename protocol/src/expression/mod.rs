//! The one place where requests become DynamoDB expressions.
//!
//! Our own attribute names stand in the text as they are, because only `data` is on DynamoDB's list of reserved
//! words. Names that a user chose go through `#` placeholders. `tests/requests/requests.txt` has each of them.

mod freeze;
mod grant;
mod held;
mod line;

use super::instants::millis_rounded_up;
use super::lease::Lease;
use super::record::ENDED;
use super::request::{Action, DataChange, Request, StoredOutcome};
use super::schema::{DATA, Schema, Ttl};
use super::value::Value;
use std::time::Duration;

/// A request in DynamoDB's terms, without table name and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expression {
    pub update: String,
    pub condition: String,
    /// Attribute names behind `#` placeholders.
    pub names: Vec<(&'static str, String)>,
    /// Attribute values behind `:` placeholders.
    pub values: Vec<(&'static str, Value)>,
    pub returns: Returns,
}

/// Which attributes an applied request returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    #[default]
    Nothing,
    /// The whole row as written. It has the token and payload of a new grant.
    AllNew,
    /// The written attributes as they were before. They show which write a renewal replaced.
    UpdatedOld,
}

impl Expression {
    /// Renders a request.
    pub fn of(request: &Request, schema: &Schema) -> Self {
        let mut out = Expression {
            update: String::with_capacity(256),
            condition: String::with_capacity(256),
            values: Vec::with_capacity(10),
            ..Expression::default()
        };
        match &request.action {
            Action::Claim { grant, trusted, looks_at_line, token } => {
                out.claim(grant, *trusted, *looks_at_line, *token, schema);
            }
            Action::Join { sleeps } => out.join(*sleeps),
            Action::Leave { ticket } => out.leave(*ticket),
            Action::Take { grant, seen, held, reclaims, line, token, names } => {
                out.as_seen(seen, *held, *reclaims, grant.once.is_some());
                out.take(grant, line, *token, names, schema);
            }
            Action::Renew { version, token, known_lease, lease, ends_at_ms, data, keep } => {
                out.mine(version, Some(*token));
                if request.transaction.is_some() {
                    // A late copy that DynamoDB no longer recognises must not be applied a second time.
                    out.condition.push_str(" AND recordVersionNumber <> :rvn");
                }
                out.condition.push_str(" AND attribute_not_exists(isReleased) AND leaseEndsAt <= :ends AND ");
                if known_lease.text() == lease.text() {
                    out.condition.push_str("leaseDuration IN (:lease)");
                } else {
                    out.condition.push_str("leaseDuration IN (:known, :lease)");
                    out.text(":known", known_lease.text());
                }
                // `:rvn` is both the upper bound and the version to write.
                out.update.push_str("SET leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends");
                out.text(":lease", lease.text());
                out.number(":ends", *ends_at_ms);
                out.kept(*ends_at_ms, *keep, schema);
                out.while_no_other_ttl(schema);
                let removed = out.data(data);
                out.remove(&[removed, schema.others_ttl()]);
                // Writes in a transaction return no attributes.
                out.returns = if request.transaction.is_some() { Returns::Nothing } else { Returns::UpdatedOld };
            }
            Action::Release { scope, ends_at_ms, data, keep, returns_row } => {
                out.scope(scope);
                if request.transaction.is_some() {
                    // A release alone may be applied twice. The caller's writes may not.
                    out.condition.push_str(" AND attribute_not_exists(isReleased)");
                } else {
                    out.not_broken();
                }
                out.update.push_str("SET isReleased = :released, leaseEndsAt = :ends");
                out.text(":released", "1");
                out.number(":ends", *ends_at_ms);
                out.kept(*ends_at_ms, *keep, schema);
                if schema.named_ttl().is_some() {
                    out.while_no_other_ttl(schema);
                }
                let removed = out.data(data);
                out.remove(&[Some("workflow"), removed]);
                // Writes in a transaction return no attributes.
                if *returns_row && request.transaction.is_none() {
                    out.returns = Returns::AllNew;
                }
            }
            Action::Break { seen, version, ends_at_ms, reason } => {
                // A release keeps the version.
                out.condition.push_str("recordVersionNumber = :seen AND attribute_not_exists(isReleased)");
                out.text(":seen", seen.as_str());
                out.update.push_str("SET isReleased = :released, leaseEndsAt = :ends, breakReason = :reason, ");
                out.update.push_str("brokenVersion = ");
                out.update.push_str(if version.is_some() { ":rvn" } else { ":seen" });
                out.text(":released", "1");
                out.number(":ends", *ends_at_ms);
                out.text(":reason", reason.as_str());
                if let Some(version) = version {
                    out.update.push_str(", recordVersionNumber = :rvn");
                    out.text(":rvn", version.as_str());
                }
                // The TTL stays, because only the holder knows for how long the row is needed.
                out.remove(&[Some("workflow")]);
            }
            Action::Freeze { row, at, reason } => out.freeze(row, *at, reason, schema),
            Action::Thaw { seen, at } => out.thaw(*seen, *at),
            Action::Reset { seen, version, ends_at_ms, reason } => {
                out.condition.push_str("recordVersionNumber = :seen AND onceState = :failed");
                out.text(":seen", seen.as_str());
                out.text(":failed", StoredOutcome::FAILED);
                out.update.push_str(
                    "SET recordVersionNumber = :rvn, isReleased = :released, leaseDuration = :lease, leaseEndsAt = :ends, \
                     resetReason = :reason",
                );
                out.text(":rvn", version.as_str());
                out.text(":released", "1");
                out.text(":lease", Lease::new(ENDED, schema.dialect).text());
                out.number(":ends", *ends_at_ms);
                out.text(":reason", reason.as_str());
                out.remove(&[Some("onceState"), Some("outcome"), Some("outcomeAt")]);
            }
            Action::Settle { version, token, outcome, now, keep } => {
                out.settle(version, *token, outcome, *now);
                out.kept(*now, Some(*keep), schema);
                let data = out.data(&DataChange::Remove);
                out.remove(&[Some("leaseDuration"), Some("leaseEndsAt"), Some("workflow"), data]);
            }
            Action::Fence { grant, token } => out.fence(*grant, *token),
        }
        out
    }

    /// Writes until when the row is needed, counted from this epoch millisecond. For a plain lock this is
    /// housekeeping. For idempotent work it is the time until which the record counts.
    fn kept(&mut self, from: u64, keep: Option<Duration>, schema: &Schema) {
        let until = keep.map(|keep| from.saturating_add(millis_rounded_up(keep)));
        if let Some(until) = until {
            self.update.push_str(", keptUntilAt = :kept");
            self.number(":kept", until);
        }
        if let Some(ttl) = &schema.ttl {
            // DynamoDB deletes no row whose TTL is a text. So a frozen lock stays frozen.
            let is_work = until.is_some();
            self.update.push_str(if is_work { ", #ttl = :ttl" } else { ", #ttl = if_not_exists(freezeReason, :ttl)" });
            self.names.push(("#ttl", ttl.attribute.clone()));
            self.number(":ttl", until.map_or_else(|| ttl.expires_at(from), Ttl::expires_after));
        }
        if let Some(name) = schema.named_ttl() {
            self.update.push_str(", ttlAttribute = :name");
            self.text(":name", name);
        }
    }

    /// Adds the condition "no other client's TTL stays in the row". DynamoDB would delete the row by a TTL that nobody
    /// moves, while somebody holds the lock or it is frozen. The write itself removes the default one, without knowing the row.
    fn while_no_other_ttl(&mut self, schema: &Schema) {
        match schema.named_ttl() {
            None => self.condition.push_str(" AND attribute_not_exists(ttlAttribute)"),
            Some(name) => {
                self.condition.push_str(" AND (attribute_not_exists(ttlAttribute) OR ttlAttribute = :name)");
                if self.values.iter().all(|(given, _)| *given != ":name") {
                    self.text(":name", name);
                }
            }
        }
    }

    /// Sets the payload, or returns the placeholder of the payload to remove.
    fn data(&mut self, data: &DataChange) -> Option<&'static str> {
        match data {
            DataChange::Keep => None,
            DataChange::Set(bytes) => {
                self.update.push_str(", #data = :data");
                self.names.push(("#data", DATA.to_owned()));
                self.values.push((":data", Value::B(bytes.clone())));
                None
            }
            DataChange::Remove => {
                self.names.push(("#data", DATA.to_owned()));
                Some("#data")
            }
        }
    }

    fn remove(&mut self, attributes: &[Option<&str>]) {
        for (position, attribute) in attributes.iter().flatten().enumerate() {
            self.update.push_str(if position == 0 { " REMOVE " } else { ", " });
            self.update.push_str(attribute);
        }
    }

    /// Adds a string behind a `:` placeholder.
    fn text(&mut self, name: &'static str, text: impl Into<String>) {
        self.values.push((name, Value::S(text.into())));
    }

    /// Adds a set of numbers behind a `:` placeholder.
    fn numbers(&mut self, name: &'static str, numbers: &[u64]) {
        self.values.push((name, Value::Ns(numbers.iter().map(u64::to_string).collect())));
    }

    /// Adds a number behind a `:` placeholder.
    fn number(&mut self, name: &'static str, number: u64) {
        self.values.push((name, Value::N(number.to_string())));
    }
}
