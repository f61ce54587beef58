//! The expressions of Claim and Take, which make a lock ours.

use super::line::NOBODY_WAITS;
use super::{Expression, Returns};
use crate::attributes::{AttributesChange, EarlierNames, MOST_ATTRIBUTES, list, listed};
use crate::request::{LineRule, NewGrant, NextToken, OnceClaim};
use crate::schema::{ATTRIBUTE_NAMES, Schema};
use crate::version::OURS;

/// The condition "nobody ever wrote the row, or it is ours and released, or it is ours and its lease ended long ago".
///
/// `leaseEndsAt <= :now` refuses a delayed copy of a Claim after a release that is newer than the Claim.
const CLAIM: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) \
     AND attribute_exists(isReleased) AND leaseEndsAt <= :now";
const CLAIM_BY_WALL_CLOCK: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) \
     AND (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted)";

/// The condition "it is free" of a caller with a ticket.
const CLAIM_IN_TURN: &str =
    "begins_with(recordVersionNumber, :ours) AND attribute_exists(isReleased) AND leaseEndsAt <= :now";
/// The condition "it is the turn of this ticket". A late copy finds it served. A ticket that was given before the counters
/// began again is larger than the last one.
const IS_NEXT: &str = " AND servedTicket = :before AND lastTicket >= :ticket";

/// The condition "the lock is not frozen".
const NOT_FROZEN: &str = " AND attribute_not_exists(freezeReason)";
/// The same, or it has a holder, who reclaims it.
const NOT_FROZEN_OR_HELD: &str = " AND (attribute_not_exists(freezeReason) OR attribute_not_exists(isReleased))";

/// The condition "the row has a smaller token, or none". It also refuses each late copy of a request that was applied.
const SMALLER_TOKEN: &str = " AND (attribute_not_exists(fencingToken) OR fencingToken < :token)";

/// The condition "the row has no additional attributes". Only a request that names them can remove them.
const WITHOUT_ATTRIBUTES: &str = " AND attribute_not_exists(attributeNames)";
/// The same, or it has exactly those that the request writes.
const WITH_THESE_ATTRIBUTES: &str = " AND (attribute_not_exists(attributeNames) OR attributeNames = :names)";

macro_rules! placeholders {
    ($($number:literal)*) => {
        [$((concat!("#a", $number), concat!(":a", $number), concat!("#r", $number))),*]
    };
}

/// For each additional attribute: the placeholders of its name and its value, and of the name of one to remove.
static ATTRIBUTES: [(&str, &str, &str); MOST_ATTRIBUTES] =
    placeholders!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);

impl Expression {
    pub(super) fn claim(
        &mut self,
        grant: &NewGrant,
        trusted: Option<u64>,
        deserted: Option<u64>,
        token: NextToken,
        schema: &Schema,
    ) {
        match &grant.once {
            None => {
                self.condition.push_str(if trusted.is_some() { CLAIM_BY_WALL_CLOCK } else { CLAIM });
                self.while_nobody_waits_since(deserted);
                self.condition.push_str(NOT_FROZEN);
            }
            // It is never frozen.
            Some(once) => self.claim_once(once.payload.is_some(), trusted.is_some()),
        }
        self.above(token);
        self.without_unseen_attributes(&grant.attributes);
        self.names.push(("#pk", schema.key_attribute.clone()));
        self.text(":ours", OURS);
        if let Some(trusted) = trusted {
            self.number(":trusted", trusted);
        }
        self.grant(grant, token, None, None, schema);
        // Of the condition. A token from the row brings it too.
        if let (NextToken::Exactly(_) | NextToken::Larger(_), now) = (token, grant.now) {
            self.number(":now", now);
        }
    }

    /// Like a plain Claim of a released lock, but applied only if it is this ticket's turn.
    pub(super) fn claim_in_turn(&mut self, grant: &NewGrant, ticket: u64, passed: bool, schema: &Schema) {
        self.condition.push_str(CLAIM_IN_TURN);
        self.condition.push_str(if passed { " AND servedTicket >= :ticket" } else { IS_NEXT });
        self.condition.push_str(NOT_FROZEN);
        self.without_unseen_attributes(&grant.attributes);
        self.text(":ours", OURS);
        if passed {
            self.number(":ticket", ticket);
        } else {
            self.number(":before", ticket.saturating_sub(1));
        }
        self.grant(grant, NextToken::FromRow, None, (!passed).then_some(ticket), schema);
    }

    fn above(&mut self, token: NextToken) {
        if matches!(token, NextToken::Larger(_)) {
            self.condition.push_str(SMALLER_TOKEN);
        }
    }

    /// A row that was not read must have no additional attributes that the grant would leave there.
    fn without_unseen_attributes(&mut self, attributes: &AttributesChange) {
        match attributes {
            AttributesChange::Keep => {}
            AttributesChange::Replace(given) if given.is_empty() => self.condition.push_str(WITHOUT_ATTRIBUTES),
            AttributesChange::Replace(_) => self.condition.push_str(WITH_THESE_ATTRIBUTES),
        }
    }

    /// Like a plain Claim, but applied only to a record of the same work that still counts.
    fn claim_once(&mut self, payload: bool, by_wall_clock: bool) {
        self.condition
            .push_str("attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND keptUntilAt >= :now");
        if payload {
            self.condition.push_str(" AND (attribute_not_exists(payloadHash) OR payloadHash = :payload)");
        }
        self.condition.push_str(if by_wall_clock {
            " AND (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted)"
        } else {
            " AND attribute_exists(isReleased) AND leaseEndsAt <= :now"
        });
    }

    /// Adds what a grant of idempotent work writes beside the lock. Returns the attributes to remove.
    fn once(&mut self, once: &OnceClaim, now: u64) -> [Option<&'static str>; 4] {
        self.update.push_str(if once.anew {
            ", attempts = :one, firstSeenAt = :now"
        } else {
            ", attempts = if_not_exists(attempts, :zero) + :one, firstSeenAt = if_not_exists(firstSeenAt, :now)"
        });
        if !once.anew {
            self.number(":zero", 0);
        }
        for (name, value) in [(":one", 1), (":now", now)] {
            if self.values.iter().all(|(given, _)| *given != name) {
                self.number(name, value);
            }
        }
        if let Some(payload) = &once.payload {
            self.update.push_str(", payloadHash = :payload");
            self.text(":payload", payload.as_str());
        }
        let of_old = |name: &'static str| once.anew.then_some(name);
        let payload = of_old("payloadHash").filter(|_| once.payload.is_none());
        [of_old("onceState"), of_old("outcome"), of_old("outcomeAt"), payload]
    }

    /// The condition "still the version that was seen, and this call may have it".
    pub(super) fn as_seen(&mut self, seen: &str, held: bool, reclaims: bool, is_work: bool) {
        self.condition.push_str("recordVersionNumber = :seen");
        if held {
            self.condition.push_str(" AND attribute_not_exists(isReleased)");
        }
        self.condition.push_str(match (reclaims, held) {
            // Idempotent work is never frozen.
            _ if is_work => "",
            (false, _) => NOT_FROZEN,
            (true, false) => NOT_FROZEN_OR_HELD,
            (true, true) => "",
        });
        self.text(":seen", seen);
    }

    pub(super) fn take(
        &mut self,
        grant: &NewGrant,
        line: LineRule,
        token: NextToken,
        names: &EarlierNames,
        schema: &Schema,
    ) {
        self.above(token);
        let serves = match line {
            LineRule::Ignored => None,
            LineRule::NobodyWaits => {
                self.condition.push_str(NOBODY_WAITS);
                None
            }
            LineRule::Serves(ticket) => Some(ticket),
        };
        let names = match names {
            EarlierNames::Seen(names) => names.as_deref(),
            EarlierNames::Unseen => {
                self.without_unseen_attributes(&grant.attributes);
                None
            }
        };
        self.grant(grant, token, names, serves, schema);
    }

    /// `names` lists the additional attributes that the row is known to have, and `serves` is the ticket of a caller in
    /// line.
    fn grant(&mut self, grant: &NewGrant, token: NextToken, names: Option<&str>, serves: Option<u64>, schema: &Schema) {
        self.update.push_str(
            "SET ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends, ",
        );
        match token {
            NextToken::FromRow => {
                self.update.push_str("fencingToken = if_not_exists(fencingToken, :now) + :one");
                self.number(":now", grant.now);
                self.number(":one", 1);
            }
            NextToken::Exactly(token) | NextToken::Larger(token) => {
                self.update.push_str("fencingToken = :token");
                self.number(":token", token);
            }
        }
        self.text(":owner", grant.owner.as_str());
        self.text(":lease", grant.lease.text());
        self.text(":rvn", grant.version.text());
        self.number(":ends", grant.ends_at_ms);
        if let Some(ticket) = serves {
            self.serves(ticket);
        }
        self.kept(grant.ends_at_ms, grant.once.as_ref().map(|once| once.keep), schema);
        self.while_no_other_ttl(schema);
        let once = grant.once.as_ref().map_or([None; 4], |once| self.once(once, grant.now));
        let data = self.data(&grant.data);
        let workflow = match &grant.workflow {
            Some(workflow) => {
                self.update.push_str(", workflow = :workflow");
                self.text(":workflow", workflow.as_str());
                None
            }
            None => Some("workflow"),
        };
        let earlier = self.attributes(&grant.attributes, names, schema);
        let [state, outcome, outcome_at, payload] = once;
        let ttl = schema.others_ttl();
        self.remove(&[Some("isReleased"), workflow, data, state, outcome, outcome_at, payload, ttl]);
        self.removes_too(&earlier);
        self.returns = Returns::AllNew;
    }

    /// Sets additional attributes. Returns what to remove of the earlier ones.
    fn attributes(&mut self, change: &AttributesChange, earlier: Option<&str>, schema: &Schema) -> Vec<&'static str> {
        let AttributesChange::Replace(given) = change else { return Vec::new() };
        for ((name, attribute), (name_here, value_here, _)) in given.iter().zip(ATTRIBUTES) {
            for part in [", ", name_here, " = ", value_here] {
                self.update.push_str(part);
            }
            self.names.push((name_here, name.clone()));
            self.values.push((value_here, attribute.value()));
        }
        if !given.is_empty() {
            self.update.push_str(", attributeNames = :names");
            self.text(":names", list(given));
        }
        let Some(earlier) = earlier else { return Vec::new() };
        let mut removed = Vec::new();
        for name in listed(earlier) {
            // A row may list anything. A request names each attribute once, and leaves the record alone.
            if schema.reserves(name) || self.names.iter().any(|(_, known)| known == name) {
                continue;
            }
            let Some(&(_, _, name_here)) = ATTRIBUTES.get(removed.len()) else { break };
            self.names.push((name_here, name.to_owned()));
            removed.push(name_here);
        }
        if given.is_empty() {
            removed.push(ATTRIBUTE_NAMES);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_closed, grant, rendered, value};
    use super::*;
    use crate::request::{Action, DataChange};
    use crate::schema::Ttl;
    use crate::value::Value;
    use std::time::Duration;

    const NO_OTHER_TTL: &str = " AND attribute_not_exists(ttlAttribute)";
    const GRANT: &str =
        "SET ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends, ";

    #[test]
    fn claim() {
        let schema = Schema { key_attribute: "pk".to_owned(), ..Schema::default() };
        let by_wall_clock = rendered(
            Action::Claim { grant: grant(), trusted: Some(3_000), deserted: None, token: NextToken::FromRow },
            &schema,
        );
        assert_eq!(
            by_wall_clock.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND \
             (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted) AND \
             attribute_not_exists(freezeReason) AND attribute_not_exists(attributeNames) AND attribute_not_exists(ttlAttribute)"
        );
        assert_eq!(
            by_wall_clock.update,
            format!(
                "{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one REMOVE isReleased, workflow, expiresAt"
            )
        );
        assert_eq!(by_wall_clock.names, [("#pk", "pk".to_owned())]);
        assert_eq!(value(&by_wall_clock, ":ours"), &Value::S("ll1-".to_owned()));
        assert_eq!(value(&by_wall_clock, ":trusted"), &Value::N("3000".to_owned()));
        assert_eq!(by_wall_clock.returns, Returns::AllNew);
        assert_closed(&by_wall_clock);

        let without = rendered(
            Action::Claim { grant: grant(), trusted: None, deserted: None, token: NextToken::FromRow },
            &schema,
        );
        assert_eq!(
            without.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND attribute_exists(isReleased) \
             AND leaseEndsAt <= :now AND attribute_not_exists(freezeReason) AND attribute_not_exists(attributeNames) AND attribute_not_exists(ttlAttribute)"
        );
        assert_closed(&without);
    }

    fn with_attributes(given: &[(&str, &str)]) -> NewGrant {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        NewGrant { attributes: AttributesChange::Replace(given), ..grant() }
    }

    #[test]
    fn a_claim_with_additional_attributes_is_applied_where_the_row_has_none_or_the_same_names() {
        let claim = |grant| {
            rendered(
                Action::Claim { grant, trusted: None, deserted: None, token: NextToken::FromRow },
                &Schema::default(),
            )
        };
        let keep = claim(NewGrant { attributes: AttributesChange::Keep, ..grant() });
        assert!(
            keep.condition.ends_with(" AND attribute_not_exists(freezeReason) AND attribute_not_exists(ttlAttribute)"),
            "{}",
            keep.condition
        );
        assert!(keep.update.ends_with(" REMOVE isReleased, workflow, expiresAt"), "{}", keep.update);
        assert_closed(&keep);

        let claim = claim(with_attributes(&[("job", "nightly"), ("shard", "5")]));
        assert!(
            claim.condition.ends_with(
                " AND attribute_not_exists(freezeReason) AND (attribute_not_exists(attributeNames) OR attributeNames = :names) AND attribute_not_exists(ttlAttribute)"
            ),
            "{}",
            claim.condition
        );
        assert_eq!(
            claim.update,
            format!(
                "{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one, #a0 = :a0, #a1 = :a1, \
                 attributeNames = :names REMOVE isReleased, workflow, expiresAt"
            )
        );
        assert_eq!(claim.names[1..], [("#a0", "job".to_owned()), ("#a1", "shard".to_owned())]);
        assert_eq!(value(&claim, ":a1"), &Value::S("5".to_owned()));
        assert_eq!(value(&claim, ":names"), &Value::S("job,shard".to_owned()));
        assert_closed(&claim);
    }

    #[test]
    fn a_take_removes_the_additional_attributes_that_the_row_lists_and_nothing_of_the_record() {
        let schema = Schema {
            ttl: Some(Ttl { attribute: "expiresAt".to_owned(), retention: Duration::ZERO }),
            ..Schema::default()
        };
        let take = |grant, names: Option<&str>| {
            let names = EarlierNames::Seen(names.map(str::to_owned));
            let (seen, token) = ("ll1-x".to_owned(), NextToken::FromRow);
            rendered(
                Action::Take { grant, seen, held: false, reclaims: false, line: LineRule::Ignored, token, names },
                &schema,
            )
        };
        let hostile = "job,job,,key,ownerName,expiresAt,attributeNames,shard";
        let none = take(grant(), Some(hostile));
        assert_eq!(
            none.condition,
            "recordVersionNumber = :seen AND attribute_not_exists(freezeReason) AND attribute_not_exists(ttlAttribute)"
        );
        assert!(none.update.ends_with(" REMOVE isReleased, workflow, #r0, #r1, attributeNames"), "{}", none.update);
        assert_eq!(none.names[1..], [("#r0", "job".to_owned()), ("#r1", "shard".to_owned())]);
        assert_closed(&none);

        let other = take(with_attributes(&[("shard", "6"), ("zone", "a")]), Some("job,shard"));
        assert!(
            other.update.ends_with(", #a0 = :a0, #a1 = :a1, attributeNames = :names REMOVE isReleased, workflow, #r0"),
            "{}",
            other.update
        );
        assert_eq!(other.names.last(), Some(&("#r0", "job".to_owned())));
        assert_closed(&other);

        let kept = take(NewGrant { attributes: AttributesChange::Keep, ..grant() }, Some("job"));
        assert!(kept.update.ends_with(" REMOVE isReleased, workflow"), "{}", kept.update);
        assert_closed(&kept);
        assert!(!take(grant(), None).update.contains("attributeNames"));
    }

    #[test]
    fn a_take_of_a_row_that_was_not_read_is_applied_where_it_leaves_no_attributes() {
        let take = |grant| {
            let (seen, token, names) = ("ll1-x".to_owned(), NextToken::FromRow, EarlierNames::Unseen);
            rendered(
                Action::Take { grant, seen, held: false, reclaims: false, line: LineRule::Ignored, token, names },
                &Schema::default(),
            )
        };
        const SEEN: &str = "recordVersionNumber = :seen AND attribute_not_exists(freezeReason)";
        assert_eq!(take(grant()).condition, format!("{SEEN} AND attribute_not_exists(attributeNames){NO_OTHER_TTL}"));
        assert_eq!(
            take(with_attributes(&[("job", "nightly")])).condition,
            format!("{SEEN} AND (attribute_not_exists(attributeNames) OR attributeNames = :names){NO_OTHER_TTL}")
        );
        let kept = NewGrant { attributes: AttributesChange::Keep, ..grant() };
        assert_eq!(take(kept).condition, format!("{SEEN}{NO_OTHER_TTL}"));
    }

    #[test]
    fn take() {
        let schema = Schema::default();
        let ours = |held, reclaims| {
            let (seen, token, names) = ("ll1-x".to_owned(), NextToken::FromRow, EarlierNames::Seen(None));
            rendered(
                Action::Take { grant: grant(), seen, held, reclaims, line: LineRule::Ignored, token, names },
                &schema,
            )
        };
        for (held, reclaims, condition) in [
            (true, false, " AND attribute_not_exists(isReleased) AND attribute_not_exists(freezeReason)"),
            // Its holder may go on with a frozen lock.
            (true, true, " AND attribute_not_exists(isReleased)"),
            (false, true, " AND (attribute_not_exists(freezeReason) OR attribute_not_exists(isReleased))"),
            (false, false, " AND attribute_not_exists(freezeReason)"),
        ] {
            let take = ours(held, reclaims);
            assert_eq!(take.condition, format!("recordVersionNumber = :seen{condition}{NO_OTHER_TTL}"));
            assert_closed(&take);
        }
        let ours = ours(false, false);
        assert_eq!(
            ours.update,
            format!(
                "{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one REMOVE isReleased, workflow, expiresAt"
            )
        );
        assert_closed(&ours);

        let mut grant = grant();
        grant.workflow = Some("arn".to_owned());
        grant.data = DataChange::Set(vec![1]);
        let (seen, names) = ("uuid".to_owned(), EarlierNames::Seen(None));
        let peers = rendered(
            Action::Take {
                grant,
                seen,
                held: false,
                reclaims: false,
                line: LineRule::Ignored,
                token: NextToken::Exactly(8),
                names,
            },
            &schema,
        );
        assert_eq!(
            peers.update,
            format!("{GRANT}fencingToken = :token, #data = :data, workflow = :workflow REMOVE isReleased, expiresAt")
        );
        assert_eq!(value(&peers, ":token"), &Value::N("8".to_owned()));
        assert_closed(&peers);
    }

    fn once(payload: Option<&str>, anew: bool) -> NewGrant {
        let once = OnceClaim { payload: payload.map(str::to_owned), keep: Duration::from_secs(60), anew };
        NewGrant { once: Some(once), attributes: AttributesChange::Keep, ..grant() }
    }

    #[test]
    fn the_claim_of_an_idempotent_work() {
        let claim = |payload, trusted| Action::Claim {
            grant: once(payload, false),
            trusted,
            deserted: None,
            token: NextToken::FromRow,
        };
        let with_payload = rendered(claim(Some("hash"), Some(3_000)), &Schema::default());
        assert_eq!(
            with_payload.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND keptUntilAt >= :now AND \
             (attribute_not_exists(payloadHash) OR payloadHash = :payload) AND \
             (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted) AND attribute_not_exists(ttlAttribute)"
        );
        assert_eq!(
            with_payload.update,
            format!(
                "{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one, keptUntilAt = :kept, \
                 attempts = if_not_exists(attempts, :zero) + :one, firstSeenAt = if_not_exists(firstSeenAt, :now), \
                 payloadHash = :payload REMOVE isReleased, workflow, expiresAt"
            )
        );
        assert_eq!(value(&with_payload, ":kept"), &Value::N("85000".to_owned()));
        assert_closed(&with_payload);

        let without = rendered(claim(None, None), &Schema::default());
        assert_eq!(
            without.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND keptUntilAt >= :now AND \
             attribute_exists(isReleased) AND leaseEndsAt <= :now AND attribute_not_exists(ttlAttribute)"
        );
        assert_closed(&without);
    }

    #[test]
    fn a_record_whose_time_is_over_keeps_nothing_but_the_token() {
        let take = |payload| {
            let (grant, token) = (once(payload, true), NextToken::Exactly(8));
            let (seen, names) = ("lo1-x".to_owned(), EarlierNames::Seen(None));
            rendered(
                Action::Take { grant, seen, held: false, reclaims: false, line: LineRule::Ignored, token, names },
                &Schema::default(),
            )
        };
        let with_payload = take(Some("hash"));
        assert_eq!(with_payload.condition, format!("recordVersionNumber = :seen{NO_OTHER_TTL}"));
        assert_eq!(
            with_payload.update,
            format!(
                "{GRANT}fencingToken = :token, keptUntilAt = :kept, attempts = :one, firstSeenAt = :now, \
                 payloadHash = :payload REMOVE isReleased, workflow, onceState, outcome, outcomeAt, expiresAt"
            )
        );
        assert_closed(&with_payload);
        let without = take(None);
        assert!(
            without.update.ends_with("onceState, outcome, outcomeAt, payloadHash, expiresAt"),
            "{}",
            without.update
        );
        assert_closed(&without);
    }
}
