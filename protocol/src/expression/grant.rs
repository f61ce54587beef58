//! The expressions of Claim and Take, which make a lock ours.

use super::line::{NOBODY_JOINED, NOBODY_WAITS};
use super::{Expression, Returns};
use crate::attributes::{AttributesChange, EarlierNames, MAX_ATTRIBUTES, list, listed};
use crate::request::{LineRule, NewGrant, NextToken, OnceClaim};
use crate::schema::{ATTRIBUTE_NAMES, LEFT_TICKETS, Schema};
use crate::version::OURS;

/// The condition "nobody ever wrote the row, or it is ours", and for the latter all that follows.
const UNWRITTEN_OR_OURS: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours)";
/// The condition "it is released".
///
/// `leaseEndsAt <= :now` refuses a delayed copy of a Claim after a release that is newer than the Claim.
const FREE: &str = " AND attribute_exists(isReleased) AND leaseEndsAt <= :now";
/// The same, or its lease ended long ago.
const FREE_OR_DEAD: &str = " AND (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted)";

/// The condition "it is a record of idempotent work that still counts".
const COUNTS: &str = " AND keptUntilAt >= :now";
/// The condition "it is a record of the same work".
const SAME_PAYLOAD: &str = " AND (attribute_not_exists(payloadHash) OR payloadHash = :payload)";

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
static ATTRIBUTES: [(&str, &str, &str); MAX_ATTRIBUTES] =
    placeholders!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);

impl Expression {
    pub(super) fn claim(
        &mut self,
        grant: &NewGrant,
        trusted: Option<u64>,
        looks_at_line: bool,
        token: NextToken,
        schema: &Schema,
    ) {
        self.condition.push_str(UNWRITTEN_OR_OURS);
        if let Some(once) = &grant.once {
            self.condition.push_str(COUNTS);
            if once.payload.is_some() {
                self.condition.push_str(SAME_PAYLOAD);
            }
        }
        self.condition.push_str(if trusted.is_some() { FREE_OR_DEAD } else { FREE });
        // Nobody waits in line for idempotent work, and it is never frozen.
        if grant.once.is_none() {
            if looks_at_line {
                self.condition.push_str(NOBODY_WAITS);
            }
            self.condition.push_str(NOT_FROZEN);
        }
        self.above(token);
        self.without_unseen_attributes(&grant.attributes);
        self.names.push(("#pk", schema.key_attribute.clone()));
        self.text(":ours", OURS);
        if let Some(trusted) = trusted {
            self.number(":trusted", trusted);
        }
        self.grant(grant, token, None, &LineRule::Ignored, schema);
        // Of the condition. A token from the row brings it too.
        if let (NextToken::Exactly(_) | NextToken::Larger(_), now) = (token, grant.now) {
            self.number(":now", now);
        }
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
        line: &LineRule,
        token: NextToken,
        names: &EarlierNames,
        schema: &Schema,
    ) {
        self.above(token);
        match line {
            LineRule::NobodyWaits => self.condition.push_str(NOBODY_WAITS),
            LineRule::Ends(_) => self.condition.push_str(NOBODY_JOINED),
            LineRule::Ignored | LineRule::Serves { .. } => {}
        }
        let names = match names {
            EarlierNames::Seen(names) => names.as_deref(),
            EarlierNames::Unseen => {
                self.without_unseen_attributes(&grant.attributes);
                None
            }
        };
        self.grant(grant, token, names, line, schema);
    }

    /// `names` lists the additional attributes that the row is known to have.
    fn grant(&mut self, grant: &NewGrant, token: NextToken, names: Option<&str>, line: &LineRule, schema: &Schema) {
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
        let (over, left) = match line {
            LineRule::Serves { ticket, over } => {
                self.serves(*ticket);
                (over.as_slice(), None)
            }
            LineRule::Ends(ticket) => {
                self.serves(*ticket);
                (&[][..], Some(LEFT_TICKETS))
            }
            LineRule::Ignored | LineRule::NobodyWaits => (&[][..], None),
        };
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
        let mut removed = vec![Some("isReleased"), workflow, data, state, outcome, outcome_at, payload, ttl, left];
        removed.extend(earlier.into_iter().map(Some));
        self.remove(&removed);
        self.lists_no_more(over);
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
