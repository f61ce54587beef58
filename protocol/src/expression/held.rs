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
            Scope::Mine { grant, up_to, token } => {
                self.mine(&Version { grant: *grant, stamp: *up_to }, *token);
            }
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

#[cfg(test)]
mod tests {
    use super::super::Returns;
    use super::super::golden::{assert_closed, in_transaction, lease, rendered, value, version};
    use super::*;
    use crate::request::{Action, DataChange};
    use crate::schema::{Schema, Ttl};
    use crate::value::Value;
    use std::time::Duration;

    const NOT_BROKEN: &str = " AND (attribute_not_exists(isReleased) OR attribute_not_exists(brokenVersion) \
                              OR brokenVersion <> recordVersionNumber)";

    #[test]
    fn renew() {
        let renew = |known, data| Action::Renew {
            version: version(),
            token: 7,
            known_lease: lease(known),
            lease: lease(20_000),
            ends_at_ms: 25_000,
            data,
            keep: None,
        };
        let same = rendered(renew(20_000, DataChange::Keep), &Schema::default());
        assert_eq!(
            same.condition,
            "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token AND \
             attribute_not_exists(isReleased) AND leaseEndsAt <= :ends AND leaseDuration IN (:lease) AND \
             attribute_not_exists(ttlAttribute)"
        );
        assert_eq!(
            same.update,
            "SET leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends REMOVE expiresAt"
        );
        assert_eq!(value(&same, ":first"), &Value::S("ll1-00000000000040008000000000000000-0".to_owned()));
        assert_eq!(
            value(&same, ":rvn"),
            &Value::S("ll1-00000000000040008000000000000000-0000000013880000000000000009".to_owned())
        );
        assert_eq!(same.returns, Returns::UpdatedOld);
        assert_closed(&same);

        let longer = rendered(renew(10_000, DataChange::Remove), &Schema::default());
        assert!(longer.condition.contains("leaseDuration IN (:known, :lease)"), "{}", longer.condition);
        assert!(longer.update.ends_with(" REMOVE #data, expiresAt"), "{}", longer.update);
        assert_closed(&longer);
    }

    #[test]
    fn who_holds_a_row_leaves_no_ttl_of_others_in_it() {
        let ttl = |name: &str| Schema {
            ttl: Some(Ttl { attribute: name.to_owned(), retention: Duration::ZERO }),
            ..Schema::default()
        };
        let renew = |schema: &Schema| {
            let renew = Action::Renew {
                version: version(),
                token: 7,
                known_lease: lease(20_000),
                lease: lease(20_000),
                ends_at_ms: 25_000,
                data: DataChange::Keep,
                keep: None,
            };
            let renew = rendered(renew, schema);
            assert_closed(&renew);
            renew
        };
        let usual = renew(&ttl("expiresAt"));
        assert!(usual.condition.ends_with(" AND attribute_not_exists(ttlAttribute)"), "{}", usual.condition);
        assert!(usual.update.ends_with(", #ttl = if_not_exists(freezeReason, :ttl)"), "{}", usual.update);

        let named = renew(&ttl("ttl"));
        assert!(
            named.condition.ends_with(" AND (attribute_not_exists(ttlAttribute) OR ttlAttribute = :name)"),
            "{}",
            named.condition
        );
        assert!(
            named.update.ends_with("#ttl = if_not_exists(freezeReason, :ttl), ttlAttribute = :name REMOVE expiresAt"),
            "{}",
            named.update
        );
        assert_eq!(value(&named, ":name"), &Value::S("ttl".to_owned()));

        // DynamoDB refuses to remove a key.
        let partition = Schema { key_attribute: "expiresAt".to_owned(), ..Schema::default() };
        let sort = Schema { sort_key_attribute: Some("expiresAt".to_owned()), ..Schema::default() };
        for key in [renew(&partition), renew(&sort)] {
            assert!(!key.update.contains("REMOVE"), "{}", key.update);
        }
    }

    #[test]
    fn release_and_delete() {
        let ttl = Some(Ttl { attribute: "expiresAt".to_owned(), retention: Duration::from_secs(60) });
        let schema = Schema { ttl, ..Schema::default() };
        let scope = Scope::Mine { grant: version().grant, up_to: version().stamp, token: Some(7) };
        let release = Action::Release {
            scope: scope.clone(),
            ends_at_ms: 6_000,
            data: DataChange::Remove,
            keep: None,
            line: None,
            returns_row: false,
        };
        let release = rendered(release, &schema);
        assert_eq!(
            release.condition,
            format!("recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token{NOT_BROKEN}")
        );
        assert_eq!(
            release.update,
            "SET isReleased = :released, leaseEndsAt = :ends, #ttl = if_not_exists(freezeReason, :ttl) REMOVE workflow, #data"
        );
        assert_eq!(value(&release, ":ttl"), &Value::N("66".to_owned()));
        assert_closed(&release);

        let delete = rendered(Action::Delete { scope }, &schema);
        assert_eq!(delete.condition, format!("{} AND attribute_not_exists(freezeReason)", release.condition));
        assert_eq!(delete.update, "");
        assert_closed(&delete);

        let cleanup = Scope::Mine { grant: version().grant, up_to: version().stamp, token: None };
        let cleanup = rendered(
            Action::Release {
                scope: cleanup,
                ends_at_ms: 6_000,
                data: DataChange::Keep,
                keep: None,
                line: None,
                returns_row: false,
            },
            &schema,
        );
        assert_eq!(cleanup.condition, format!("recordVersionNumber BETWEEN :first AND :rvn{NOT_BROKEN}"));
        assert_closed(&cleanup);
    }

    #[test]
    fn break_changes_exactly_the_version_that_was_seen_held() {
        let broken = |seen: &str, version: Option<&str>| {
            let (seen, version, reason) = (seen.to_owned(), version.map(str::to_owned), "gone".to_owned());
            rendered(Action::Break { seen, version, ends_at_ms: 6_000, reason }, &Schema::default())
        };
        let peers = broken("a peer's", Some("another"));
        let version = ", brokenVersion = :rvn, recordVersionNumber = :rvn REMOVE workflow";
        assert!(peers.update.contains(version), "{}", peers.update);
        assert_closed(&peers);
        let broken = broken("ll1-x", None);
        assert_eq!(broken.condition, "recordVersionNumber = :seen AND attribute_not_exists(isReleased)");
        assert_eq!(
            broken.update,
            "SET isReleased = :released, leaseEndsAt = :ends, breakReason = :reason, brokenVersion = :seen REMOVE workflow"
        );
        assert_eq!(value(&broken, ":reason"), &Value::S("gone".to_owned()));
        assert_closed(&broken);
    }

    #[test]
    fn reset_changes_exactly_the_record_that_was_seen_failed() {
        let (seen, version) = ("lo1-x".to_owned(), "ll1-x".to_owned());
        let reset = Action::Reset { seen, version, ends_at_ms: 6_000, reason: "gone".to_owned() };
        let reset = rendered(reset, &Schema::default());
        assert_eq!(reset.condition, "recordVersionNumber = :seen AND onceState = :failed");
        assert_eq!(
            reset.update,
            "SET recordVersionNumber = :rvn, isReleased = :released, leaseDuration = :lease, leaseEndsAt = :ends, \
             resetReason = :reason REMOVE onceState, outcome, outcomeAt"
        );
        assert_eq!(value(&reset, ":failed"), &Value::S("failed".to_owned()));
        assert_eq!(value(&reset, ":rvn"), &Value::S("ll1-x".to_owned()));
        assert_closed(&reset);
    }

    #[test]
    fn a_fence_holds_for_every_version_of_the_grant_until_it_is_released() {
        let fence = in_transaction(Action::Fence { grant: version().grant, token: 7 });
        assert_eq!(
            fence.condition,
            "recordVersionNumber BETWEEN :first AND :last AND fencingToken = :token AND attribute_not_exists(isReleased)"
        );
        assert_eq!(value(&fence, ":first"), &Value::S("ll1-00000000000040008000000000000000-0".to_owned()));
        assert_eq!(value(&fence, ":last"), &Value::S("ll1-00000000000040008000000000000000-g".to_owned()));
        assert_eq!(fence.update, "");
        assert_closed(&fence);
    }

    #[test]
    fn a_commit_is_a_renewal_and_a_commit_and_release_ends_only_a_lock_that_is_held() {
        let renew = Action::Renew {
            version: version(),
            token: 7,
            known_lease: lease(20_000),
            lease: lease(20_000),
            ends_at_ms: 25_000,
            data: DataChange::Keep,
            keep: None,
        };
        let alone = rendered(renew.clone(), &Schema::default());
        let commit = in_transaction(renew);
        assert_eq!(commit.update, alone.update);
        assert_eq!(
            commit.condition,
            "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token AND recordVersionNumber <> :rvn AND \
             attribute_not_exists(isReleased) AND leaseEndsAt <= :ends AND leaseDuration IN (:lease) AND \
             attribute_not_exists(ttlAttribute)"
        );
        assert_closed(&commit);
        assert_eq!(commit.returns, Returns::Nothing);

        let scope = Scope::Mine { grant: version().grant, up_to: version().stamp, token: Some(7) };
        let finish = in_transaction(Action::Release {
            scope,
            ends_at_ms: 6_000,
            data: DataChange::Keep,
            keep: None,
            line: None,
            returns_row: false,
        });
        assert_eq!(
            finish.condition,
            "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token AND attribute_not_exists(isReleased)"
        );
        assert_eq!(finish.update, "SET isReleased = :released, leaseEndsAt = :ends REMOVE workflow");
        assert_closed(&finish);
    }

    #[test]
    fn the_outcome_of_an_idempotent_work() {
        let schema = Schema {
            ttl: Some(Ttl { attribute: "expiresAt".to_owned(), retention: Duration::from_secs(1) }),
            ..Schema::default()
        };
        let settle = Action::Settle {
            version: version(),
            token: 7,
            outcome: StoredOutcome::Done("[1]".to_owned()),
            now: 6_500,
            keep: Duration::from_secs(60),
        };
        let settle = rendered(settle, &schema);
        assert_eq!(
            settle.condition,
            "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token AND attribute_not_exists(isReleased)"
        );
        assert_eq!(
            settle.update,
            "SET recordVersionNumber = :settled, onceState = :state, outcome = :outcome, outcomeAt = :now, \
             keptUntilAt = :kept, #ttl = :ttl REMOVE leaseDuration, leaseEndsAt, workflow, #data"
        );
        let settled = "lo1-00000000000040008000000000000000-0000000013880000000000000009";
        assert_eq!(value(&settle, ":settled"), &Value::S(settled.to_owned()));
        assert_eq!(value(&settle, ":state"), &Value::S("done".to_owned()));
        assert_eq!(value(&settle, ":kept"), &Value::N("66500".to_owned()));
        assert_eq!(value(&settle, ":ttl"), &Value::N("67".to_owned()));
        assert_closed(&settle);
        assert!(Version::parse(settled).is_none(), "no lock's version any more");
    }

    #[test]
    fn the_releases_that_serve_workflows() {
        let exactly = |workflow: Option<&str>| Action::Release {
            scope: Scope::Exactly { version: "ll1-x".to_owned(), workflow: workflow.map(str::to_owned) },
            ends_at_ms: 6_000,
            data: DataChange::Keep,
            keep: None,
            line: None,
            returns_row: false,
        };
        let by_owner = rendered(exactly(None), &Schema::default());
        assert_eq!(by_owner.condition, format!("recordVersionNumber = :seen{NOT_BROKEN}"));
        assert_closed(&by_owner);
        let by_workflow = rendered(exactly(Some("arn")), &Schema::default());
        assert_eq!(by_workflow.condition, format!("recordVersionNumber = :seen AND workflow = :workflow{NOT_BROKEN}"));
        assert_closed(&by_workflow);
    }
}
