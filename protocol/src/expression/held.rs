//! The expressions of the writes under a held lock: conditions on the grant, and the end of idempotent work.

use super::Expression;
use crate::request::{Scope, StoredOutcome};
use crate::version::{Grant, Version};

impl Expression {
    /// The condition "still my grant, and nothing newer than this". Writes the outcome, under a version that is not a
    /// lock's.
    pub(super) fn settle(&mut self, version: &Version, token: u64, outcome: &StoredOutcome, now: u64) {
        self.mine(version, Some(token));
        self.condition.push_str(" AND attribute_not_exists(isReleased)");
        self.update
            .push_str("SET recordVersionNumber = :settled, onceState = :state, outcome = :outcome, outcomeAt = :now");
        self.text(":settled", version.settled());
        self.text(":state", outcome.state());
        self.text(":outcome", outcome.json());
        self.number(":now", now);
    }

    pub(super) fn scope(&mut self, scope: &Scope) {
        match scope {
            Scope::Mine { up_to, token } => self.mine(up_to, *token),
            Scope::Exactly { version, workflow } => {
                self.condition.push_str("recordVersionNumber = :seen");
                self.text(":seen", version.as_str());
                if let Some(workflow) = workflow {
                    self.condition.push_str(" AND workflow = :workflow");
                    self.text(":workflow", workflow.as_str());
                }
            }
        }
    }

    /// The condition "no operator has broken it". A break leaves the version of the grant, as a release does. So without this, the
    /// release of a broken lock would look like one that is repeated.
    pub(super) fn not_broken(&mut self) {
        self.condition.push_str(
            " AND (attribute_not_exists(isReleased) OR attribute_not_exists(brokenVersion) \
             OR brokenVersion <> recordVersionNumber)",
        );
    }

    /// The condition "still my grant, whatever its last write was". Stamps are hexadecimal digits, which all sort
    /// before this bound.
    pub(super) fn fence(&mut self, grant: Grant, token: u64) {
        self.condition.push_str(
            "recordVersionNumber BETWEEN :first AND :last AND fencingToken = :token AND \
             attribute_not_exists(isReleased)",
        );
        self.text(":first", grant.first_version());
        self.text(":last", grant.last_version());
        self.number(":token", token);
    }

    /// The condition "still my grant, and nothing newer than this".
    pub(super) fn mine(&mut self, up_to: &Version, token: Option<u64>) {
        self.condition.push_str("recordVersionNumber BETWEEN :first AND :rvn");
        self.text(":first", up_to.grant.first_version());
        self.text(":rvn", up_to.text());
        if let Some(token) = token {
            self.condition.push_str(" AND fencingToken = :token");
            self.number(":token", token);
        }
    }
}
