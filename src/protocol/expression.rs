//! The one place where requests become DynamoDB expressions.
//!
//! Our own attribute names stand in the text as they are, because only `data` is on DynamoDB's list of reserved
//! words. Names that a user chose go through `#` placeholders.

use super::attributes::{AttributesChange, EarlierNames, MOST_ATTRIBUTES, list, listed};
use super::instants::millis_rounded_up;
use super::request::{Action, DataChange, NewGrant, NextToken, OnceClaim, Request, Scope, StoredOutcome};
use super::schema::{ATTRIBUTE_NAMES, DATA, Schema, Ttl};
use super::value::Value;
use super::version::{Grant, OURS, Version};
use std::time::Duration;

/// A request in DynamoDB's terms, without table name and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expression {
    pub update: String,
    /// Empty for a read.
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

/// The condition "nobody ever wrote the row, or it is ours and released, or it is ours and its lease ended long ago".
///
/// `leaseEndsAt <= :now` refuses a delayed copy of a Claim after a release that is newer than the Claim.
const CLAIM: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) \
     AND attribute_exists(isReleased) AND leaseEndsAt <= :now";
const CLAIM_BY_WALL_CLOCK: &str = "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) \
     AND (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted)";

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
    /// Renders a request.
    pub fn of(request: &Request, schema: &Schema) -> Self {
        let mut out = Expression {
            update: String::with_capacity(256),
            condition: String::with_capacity(256),
            values: Vec::with_capacity(10),
            ..Expression::default()
        };
        match &request.action {
            Action::Claim { grant, trusted } => out.claim(grant, *trusted, schema),
            Action::Take { grant, seen, held, token, names } => out.take(grant, seen, *held, *token, names, schema),
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
                let removed = out.data(data);
                out.remove(&[removed]);
                // Writes in a transaction return no attributes.
                out.returns = if request.transaction.is_some() { Returns::Nothing } else { Returns::UpdatedOld };
            }
            Action::Release { scope, ends_at_ms, data, keep } => {
                out.scope(scope);
                if request.transaction.is_some() {
                    // A release alone may be applied twice. The caller's writes may not.
                    out.condition.push_str(" AND attribute_not_exists(isReleased)");
                }
                out.update.push_str("SET isReleased = :released, leaseEndsAt = :ends");
                out.text(":released", "1");
                out.number(":ends", *ends_at_ms);
                out.kept(*ends_at_ms, *keep, schema);
                let removed = out.data(data);
                out.remove(&[Some("workflow"), removed]);
            }
            Action::Settle { version, token, outcome, now, keep } => {
                out.settle(version, *token, outcome, *now);
                out.kept(*now, Some(*keep), schema);
                let data = out.data(&DataChange::Remove);
                out.remove(&[Some("leaseDuration"), Some("leaseEndsAt"), Some("workflow"), data]);
            }
            Action::Delete { scope } => out.scope(scope),
            Action::Fence { grant, token } => out.fence(*grant, *token),
            Action::Peek => {}
        }
        out
    }

    fn claim(&mut self, grant: &NewGrant, trusted: Option<u64>, schema: &Schema) {
        match &grant.once {
            None => self.condition.push_str(if trusted.is_some() { CLAIM_BY_WALL_CLOCK } else { CLAIM }),
            Some(once) => self.claim_once(once.payload.is_some(), trusted.is_some()),
        }
        self.without_unseen_attributes(&grant.attributes);
        self.names.push(("#pk", schema.key_attribute.clone()));
        self.text(":ours", OURS);
        if let Some(trusted) = trusted {
            self.number(":trusted", trusted);
        }
        self.grant(grant, NextToken::FromRow, None, schema);
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

    /// The condition "still my grant, and nothing newer than this". Writes the outcome, under a version that is not a
    /// lock's.
    fn settle(&mut self, version: &Version, token: u64, outcome: &StoredOutcome, now: u64) {
        self.mine(version, Some(token));
        self.condition.push_str(" AND attribute_not_exists(isReleased)");
        self.update
            .push_str("SET recordVersionNumber = :settled, onceState = :state, outcome = :outcome, outcomeAt = :now");
        self.text(":settled", version.settled());
        self.text(":state", outcome.state());
        self.text(":outcome", outcome.json());
        self.number(":now", now);
    }

    fn take(
        &mut self,
        grant: &NewGrant,
        seen: &str,
        held: bool,
        token: NextToken,
        names: &EarlierNames,
        schema: &Schema,
    ) {
        self.condition.push_str("recordVersionNumber = :seen");
        if held {
            self.condition.push_str(" AND attribute_not_exists(isReleased)");
        }
        self.text(":seen", seen);
        let names = match names {
            EarlierNames::Seen(names) => names.as_deref(),
            EarlierNames::Unseen => {
                self.without_unseen_attributes(&grant.attributes);
                None
            }
        };
        self.grant(grant, token, names, schema);
    }

    /// `names` lists the additional attributes that the row is known to have.
    fn grant(&mut self, grant: &NewGrant, token: NextToken, names: Option<&str>, schema: &Schema) {
        self.update.push_str(
            "SET ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends, ",
        );
        match token {
            NextToken::FromRow => {
                self.update.push_str("fencingToken = if_not_exists(fencingToken, :now) + :one");
                self.number(":now", grant.now);
                self.number(":one", 1);
            }
            NextToken::Exactly(token) => {
                self.update.push_str("fencingToken = :token");
                self.number(":token", token);
            }
        }
        self.text(":owner", grant.owner.as_str());
        self.text(":lease", grant.lease.text());
        self.text(":rvn", grant.version.text());
        self.number(":ends", grant.ends_at_ms);
        self.kept(grant.ends_at_ms, grant.once.as_ref().map(|once| once.keep), schema);
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
        self.remove(&[Some("isReleased"), workflow, data, state, outcome, outcome_at, payload]);
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

    fn scope(&mut self, scope: &Scope) {
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

    /// The condition "still my grant, whatever its last write was". Stamps are hexadecimal digits, which all sort
    /// before this bound.
    fn fence(&mut self, grant: Grant, token: u64) {
        self.condition.push_str(
            "recordVersionNumber BETWEEN :first AND :last AND fencingToken = :token AND \
             attribute_not_exists(isReleased)",
        );
        self.text(":first", grant.first_version());
        self.text(":last", grant.last_version());
        self.number(":token", token);
    }

    /// The condition "still my grant, and nothing newer than this".
    fn mine(&mut self, up_to: &Version, token: Option<u64>) {
        self.condition.push_str("recordVersionNumber BETWEEN :first AND :rvn");
        self.text(":first", up_to.grant.first_version());
        self.text(":rvn", up_to.text());
        if let Some(token) = token {
            self.condition.push_str(" AND fencingToken = :token");
            self.number(":token", token);
        }
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
            self.update.push_str(", #ttl = :ttl");
            self.names.push(("#ttl", ttl.attribute.clone()));
            self.number(":ttl", until.map_or_else(|| ttl.expires_at(from), Ttl::expires_after));
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

    /// Adds attributes to those that are removed.
    fn removes_too(&mut self, attributes: &[&str]) {
        for attribute in attributes {
            self.update.push_str(", ");
            self.update.push_str(attribute);
        }
    }

    /// Adds a string behind a `:` placeholder.
    fn text(&mut self, name: &'static str, text: impl Into<String>) {
        self.values.push((name, Value::S(text.into())));
    }

    /// Adds a number behind a `:` placeholder.
    fn number(&mut self, name: &'static str, number: u64) {
        self.values.push((name, Value::N(number.to_string())));
    }
}

#[cfg(test)]
mod tests {
    //! The texts of the expressions. A change here is a change of the wire format and needs a reason.

    use super::super::lease::{Dialect, Lease};
    use super::super::request::TransactionId;
    use super::super::schema::Ttl;
    use super::super::version::Stamp;
    use super::*;
    use std::time::Duration;

    fn version() -> Version {
        Version { grant: Grant::from_random([0; 16]), stamp: Stamp::after(None, 5_000, 9) }
    }

    fn lease(millis: u64) -> Lease {
        Lease::new(Duration::from_millis(millis), Dialect::Java)
    }

    fn grant() -> NewGrant {
        NewGrant {
            version: version(),
            owner: "me".to_owned(),
            lease: lease(20_000),
            now: 5_000,
            ends_at_ms: 25_000,
            data: DataChange::Keep,
            attributes: AttributesChange::default(),
            workflow: None,
            once: None,
        }
    }

    fn rendered(action: Action, schema: &Schema) -> Expression {
        Expression::of(&Request::alone("k".into(), action), schema)
    }

    fn in_transaction(action: Action) -> Expression {
        let transaction = Some(TransactionId::from_random([1; 16]));
        Expression::of(&Request { transaction, ..Request::alone("k".into(), action) }, &Schema::default())
    }

    fn value<'a>(expression: &'a Expression, name: &str) -> &'a Value {
        &expression.values.iter().find(|(own, _)| *own == name).unwrap().1
    }

    fn assert_closed(expression: &Expression) {
        let text = format!("{} {}", expression.update, expression.condition);
        let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '#' || c == ':')).collect();
        for name in expression.names.iter().map(|(n, _)| n).chain(expression.values.iter().map(|(n, _)| n)) {
            assert!(words.contains(name), "{name} is given but unused in {text}");
        }
        for word in words.iter().filter(|w| w.starts_with('#') || w.starts_with(':')) {
            let given =
                expression.names.iter().any(|(n, _)| n == word) || expression.values.iter().any(|(n, _)| n == word);
            assert!(given, "{word} is used but not given in {text}");
        }
    }

    const GRANT: &str =
        "SET ownerName = :owner, leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends, ";

    #[test]
    fn claim() {
        let schema = Schema { key_attribute: "pk".to_owned(), ..Schema::default() };
        let by_wall_clock = rendered(Action::Claim { grant: grant(), trusted: Some(3_000) }, &schema);
        assert_eq!(
            by_wall_clock.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND \
             (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted) AND \
             attribute_not_exists(attributeNames)"
        );
        assert_eq!(
            by_wall_clock.update,
            format!("{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one REMOVE isReleased, workflow")
        );
        assert_eq!(by_wall_clock.names, [("#pk", "pk".to_owned())]);
        assert_eq!(value(&by_wall_clock, ":ours"), &Value::S("ll1-".to_owned()));
        assert_eq!(value(&by_wall_clock, ":trusted"), &Value::N("3000".to_owned()));
        assert_eq!(by_wall_clock.returns, Returns::AllNew);
        assert_closed(&by_wall_clock);

        let without = rendered(Action::Claim { grant: grant(), trusted: None }, &schema);
        assert_eq!(
            without.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND attribute_exists(isReleased) \
             AND leaseEndsAt <= :now AND attribute_not_exists(attributeNames)"
        );
        assert_closed(&without);
    }

    fn with_attributes(given: &[(&str, &str)]) -> NewGrant {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        NewGrant { attributes: AttributesChange::Replace(given), ..grant() }
    }

    #[test]
    fn a_claim_with_additional_attributes_is_applied_where_the_row_has_none_or_the_same_names() {
        let claim = |grant| rendered(Action::Claim { grant, trusted: None }, &Schema::default());
        let keep = claim(NewGrant { attributes: AttributesChange::Keep, ..grant() });
        assert!(keep.condition.ends_with(" AND leaseEndsAt <= :now"), "{}", keep.condition);
        assert!(keep.update.ends_with(" REMOVE isReleased, workflow"), "{}", keep.update);
        assert_closed(&keep);

        let claim = claim(with_attributes(&[("job", "nightly"), ("shard", "5")]));
        assert!(
            claim.condition.ends_with(
                " AND leaseEndsAt <= :now AND (attribute_not_exists(attributeNames) OR attributeNames = :names)"
            ),
            "{}",
            claim.condition
        );
        assert_eq!(
            claim.update,
            format!(
                "{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one, #a0 = :a0, #a1 = :a1, \
                 attributeNames = :names REMOVE isReleased, workflow"
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
            rendered(Action::Take { grant, seen, held: false, token, names }, &schema)
        };
        let hostile = "job,job,,key,ownerName,expiresAt,attributeNames,shard";
        let none = take(grant(), Some(hostile));
        assert_eq!(none.condition, "recordVersionNumber = :seen");
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
            rendered(Action::Take { grant, seen, held: false, token, names }, &Schema::default())
        };
        assert_eq!(take(grant()).condition, "recordVersionNumber = :seen AND attribute_not_exists(attributeNames)");
        assert_eq!(
            take(with_attributes(&[("job", "nightly")])).condition,
            "recordVersionNumber = :seen AND (attribute_not_exists(attributeNames) OR attributeNames = :names)"
        );
        let kept = NewGrant { attributes: AttributesChange::Keep, ..grant() };
        assert_eq!(take(kept).condition, "recordVersionNumber = :seen");
    }

    #[test]
    fn take() {
        let schema = Schema::default();
        let ours = |held| {
            let (seen, names) = ("ll1-x".to_owned(), EarlierNames::Seen(None));
            rendered(Action::Take { grant: grant(), seen, held, token: NextToken::FromRow, names }, &schema)
        };
        let held = ours(true);
        assert_eq!(held.condition, "recordVersionNumber = :seen AND attribute_not_exists(isReleased)");
        assert_closed(&held);
        let ours = ours(false);
        assert_eq!(ours.condition, "recordVersionNumber = :seen");
        assert_eq!(
            ours.update,
            format!("{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one REMOVE isReleased, workflow")
        );
        assert_closed(&ours);

        let mut grant = grant();
        grant.workflow = Some("arn".to_owned());
        grant.data = DataChange::Set(vec![1]);
        let (seen, names) = ("uuid".to_owned(), EarlierNames::Seen(None));
        let peers = rendered(Action::Take { grant, seen, held: false, token: NextToken::Exactly(8), names }, &schema);
        assert_eq!(
            peers.update,
            format!("{GRANT}fencingToken = :token, #data = :data, workflow = :workflow REMOVE isReleased")
        );
        assert_eq!(value(&peers, ":token"), &Value::N("8".to_owned()));
        assert_closed(&peers);
    }

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
             attribute_not_exists(isReleased) AND leaseEndsAt <= :ends AND leaseDuration IN (:lease)"
        );
        assert_eq!(same.update, "SET leaseDuration = :lease, recordVersionNumber = :rvn, leaseEndsAt = :ends");
        assert_eq!(value(&same, ":first"), &Value::S("ll1-00000000000040008000000000000000-0".to_owned()));
        assert_eq!(value(&same, ":rvn"), &Value::S("ll1-00000000000040008000000000000000-0000000013880009".to_owned()));
        assert_eq!(same.returns, Returns::UpdatedOld);
        assert_closed(&same);

        let longer = rendered(renew(10_000, DataChange::Remove), &Schema::default());
        assert!(longer.condition.ends_with("leaseDuration IN (:known, :lease)"), "{}", longer.condition);
        assert!(longer.update.ends_with(" REMOVE #data"), "{}", longer.update);
        assert_closed(&longer);
    }

    #[test]
    fn release_and_delete() {
        let ttl = Some(Ttl { attribute: "expiresAt".to_owned(), retention: Duration::from_secs(60) });
        let schema = Schema { ttl, ..Schema::default() };
        let scope = Scope::Mine { grant: version().grant, up_to: version().stamp, token: Some(7) };
        let release = Action::Release { scope: scope.clone(), ends_at_ms: 6_000, data: DataChange::Remove, keep: None };
        let release = rendered(release, &schema);
        assert_eq!(release.condition, "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token");
        assert_eq!(
            release.update,
            "SET isReleased = :released, leaseEndsAt = :ends, #ttl = :ttl REMOVE workflow, #data"
        );
        assert_eq!(value(&release, ":ttl"), &Value::N("66".to_owned()));
        assert_closed(&release);

        let delete = rendered(Action::Delete { scope }, &schema);
        assert_eq!(delete.condition, release.condition);
        assert_eq!(delete.update, "");
        assert_closed(&delete);

        let cleanup = Scope::Mine { grant: version().grant, up_to: version().stamp, token: None };
        let cleanup = rendered(
            Action::Release { scope: cleanup, ends_at_ms: 6_000, data: DataChange::Keep, keep: None },
            &schema,
        );
        assert_eq!(cleanup.condition, "recordVersionNumber BETWEEN :first AND :rvn");
        assert_closed(&cleanup);
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
             attribute_not_exists(isReleased) AND leaseEndsAt <= :ends AND leaseDuration IN (:lease)"
        );
        assert_closed(&commit);
        assert_eq!(commit.returns, Returns::Nothing);

        let scope = Scope::Mine { grant: version().grant, up_to: version().stamp, token: Some(7) };
        let finish = in_transaction(Action::Release { scope, ends_at_ms: 6_000, data: DataChange::Keep, keep: None });
        assert_eq!(
            finish.condition,
            "recordVersionNumber BETWEEN :first AND :rvn AND fencingToken = :token AND attribute_not_exists(isReleased)"
        );
        assert_eq!(finish.update, "SET isReleased = :released, leaseEndsAt = :ends REMOVE workflow");
        assert_closed(&finish);
    }

    fn once(payload: Option<&str>, anew: bool) -> NewGrant {
        let once = OnceClaim { payload: payload.map(str::to_owned), keep: Duration::from_secs(60), anew };
        NewGrant { once: Some(once), attributes: AttributesChange::Keep, ..grant() }
    }

    #[test]
    fn the_claim_of_an_idempotent_work() {
        let claim = |payload, trusted| Action::Claim { grant: once(payload, false), trusted };
        let with_payload = rendered(claim(Some("hash"), Some(3_000)), &Schema::default());
        assert_eq!(
            with_payload.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND keptUntilAt >= :now AND \
             (attribute_not_exists(payloadHash) OR payloadHash = :payload) AND \
             (attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted)"
        );
        assert_eq!(
            with_payload.update,
            format!(
                "{GRANT}fencingToken = if_not_exists(fencingToken, :now) + :one, keptUntilAt = :kept, \
                 attempts = if_not_exists(attempts, :zero) + :one, firstSeenAt = if_not_exists(firstSeenAt, :now), \
                 payloadHash = :payload REMOVE isReleased, workflow"
            )
        );
        assert_eq!(value(&with_payload, ":kept"), &Value::N("85000".to_owned()));
        assert_closed(&with_payload);

        let without = rendered(claim(None, None), &Schema::default());
        assert_eq!(
            without.condition,
            "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND keptUntilAt >= :now AND \
             attribute_exists(isReleased) AND leaseEndsAt <= :now"
        );
        assert_closed(&without);
    }

    #[test]
    fn a_record_whose_time_is_over_keeps_nothing_but_the_token() {
        let take = |payload| {
            let (grant, token) = (once(payload, true), NextToken::Exactly(8));
            let (seen, names) = ("lo1-x".to_owned(), EarlierNames::Seen(None));
            rendered(Action::Take { grant, seen, held: false, token, names }, &Schema::default())
        };
        let with_payload = take(Some("hash"));
        assert_eq!(with_payload.condition, "recordVersionNumber = :seen");
        assert_eq!(
            with_payload.update,
            format!(
                "{GRANT}fencingToken = :token, keptUntilAt = :kept, attempts = :one, firstSeenAt = :now, \
                 payloadHash = :payload REMOVE isReleased, workflow, onceState, outcome, outcomeAt"
            )
        );
        assert_closed(&with_payload);
        let without = take(None);
        assert!(without.update.ends_with("onceState, outcome, outcomeAt, payloadHash"), "{}", without.update);
        assert_closed(&without);
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
        let settled = "lo1-00000000000040008000000000000000-0000000013880009";
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
        };
        let by_owner = rendered(exactly(None), &Schema::default());
        assert_eq!(by_owner.condition, "recordVersionNumber = :seen");
        assert_closed(&by_owner);
        let by_workflow = rendered(exactly(Some("arn")), &Schema::default());
        assert_eq!(by_workflow.condition, "recordVersionNumber = :seen AND workflow = :workflow");
        assert_closed(&by_workflow);
    }
}
