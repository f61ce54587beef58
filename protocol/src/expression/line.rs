//! The expressions of the line of those who wait: taking a ticket, leaving a lock to the line, and telling it how long
//! holders hold the lock.

use super::{Expression, Returns};
use crate::line::{HoldTimes, LineUpdate};
use crate::version::OURS;

/// The condition "nobody waits in line".
pub(super) const NOBODY_WAITS: &str = " AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket)";
/// The same, or the lease ended so long ago that nobody can be in line any more.
const NOBODY_WAITS_SINCE: &str =
    " AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket OR leaseEndsAt < :deserted)";

impl Expression {
    /// Takes a ticket exactly where a Claim is refused: of a lock that is held, or that others wait for. So nobody takes
    /// a ticket of a lock that is free, and then waits for it.
    pub(super) fn join(&mut self, sleeps: bool) {
        self.condition.push_str(
            "begins_with(recordVersionNumber, :ours) AND (attribute_not_exists(isReleased) OR lastTicket > servedTicket)",
        );
        self.update.push_str(
            "SET lastTicket = if_not_exists(lastTicket, :zero) + :one, servedTicket = if_not_exists(servedTicket, :zero)",
        );
        if sleeps {
            self.update.push_str(", lastSleeper = if_not_exists(lastTicket, :zero) + :one");
        }
        self.text(":ours", OURS);
        self.number(":zero", 0);
        self.number(":one", 1);
        self.returns = Returns::AllNew;
    }

    pub(super) fn serves(&mut self, ticket: u64) {
        self.update.push_str(", servedTicket = :ticket");
        self.number(":ticket", ticket);
    }

    pub(super) fn while_nobody_waits_since(&mut self, deserted: Option<u64>) {
        let Some(deserted) = deserted else { return };
        self.condition.push_str(NOBODY_WAITS_SINCE);
        self.number(":deserted", deserted);
    }

    /// Tells those in line for how long holders hold the lock, and that nobody has to be waited for any more.
    pub(super) fn tell_line(&mut self, update: Option<LineUpdate>) {
        let Some(LineUpdate { times: HoldTimes { mean, spread }, serves }) = update else { return };
        if let Some(ticket) = serves {
            self.serves(ticket);
        }
        self.update.push_str(", heldMillis = :held, heldSpread = :spread");
        for (name, duration) in [(":held", mean), (":spread", spread)] {
            self.number(name, u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_closed, grant, rendered, value, version};
    use super::*;
    use crate::attributes::EarlierNames;
    use crate::request::{Action, DataChange, LineRule, NextToken, Scope};
    use crate::schema::Schema;
    use crate::value::Value;
    use std::time::Duration;

    #[test]
    fn a_ticket_is_given_behind_a_holder_and_where_others_wait() {
        let join = rendered(Action::Join { sleeps: false }, &Schema::default());
        assert_eq!(
            join.condition,
            "begins_with(recordVersionNumber, :ours) AND (attribute_not_exists(isReleased) OR lastTicket > servedTicket)"
        );
        assert_eq!(
            join.update,
            "SET lastTicket = if_not_exists(lastTicket, :zero) + :one, servedTicket = if_not_exists(servedTicket, :zero)"
        );
        assert_eq!(join.returns, Returns::AllNew);
        assert_closed(&join);

        let asleep = rendered(Action::Join { sleeps: true }, &Schema::default());
        assert_eq!(asleep.condition, join.condition);
        let sleeper = ", lastSleeper = if_not_exists(lastTicket, :zero) + :one";
        assert_eq!(asleep.update, format!("{}{sleeper}", join.update));
        assert_closed(&asleep);
    }

    #[test]
    fn a_claim_leaves_the_lock_to_those_in_line_until_it_is_deserted() {
        let claim = |trusted| {
            let (deserted, token) = (Some(1_000), NextToken::FromRow);
            rendered(Action::Claim { grant: grant(), trusted, deserted, token }, &Schema::default())
        };
        let nobody_waits = "AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket OR leaseEndsAt < :deserted) \
             AND attribute_not_exists(freezeReason) AND attribute_not_exists(attributeNames) AND attribute_not_exists(ttlAttribute)";
        for (trusted, is_free) in [
            (None, "attribute_exists(isReleased) AND leaseEndsAt <= :now"),
            (Some(3_000), "(attribute_exists(isReleased) AND leaseEndsAt <= :now OR leaseEndsAt < :trusted)"),
        ] {
            let claim = claim(trusted);
            assert_eq!(
                claim.condition,
                format!(
                    "attribute_not_exists(#pk) OR begins_with(recordVersionNumber, :ours) AND {is_free} {nobody_waits}"
                )
            );
            assert_eq!(value(&claim, ":deserted"), &Value::N("1000".to_owned()));
            assert_closed(&claim);
        }
    }

    #[test]
    fn a_claim_in_turn_serves_the_ticket_that_follows() {
        let claim = rendered(Action::ClaimInTurn { grant: grant(), ticket: 7, passed: false }, &Schema::default());
        assert_eq!(
            claim.condition,
            "begins_with(recordVersionNumber, :ours) AND attribute_exists(isReleased) AND leaseEndsAt <= :now AND \
             servedTicket = :before AND lastTicket >= :ticket AND attribute_not_exists(freezeReason) AND \
             attribute_not_exists(attributeNames) AND attribute_not_exists(ttlAttribute)"
        );
        assert!(
            claim.update.ends_with(
                "fencingToken = if_not_exists(fencingToken, :now) + :one, servedTicket = :ticket REMOVE isReleased, workflow, expiresAt"
            ),
            "{}",
            claim.update
        );
        assert_eq!(
            [":before", ":ticket"].map(|name| value(&claim, name).clone()),
            ["6", "7"].map(|n| Value::N(n.to_owned()))
        );
        assert_eq!(claim.returns, Returns::AllNew);
        assert_closed(&claim);

        let after = rendered(Action::ClaimInTurn { grant: grant(), ticket: 7, passed: true }, &Schema::default());
        assert!(after.condition.contains("leaseEndsAt <= :now AND servedTicket >= :ticket AND"), "{}", after.condition);
        assert!(!after.update.contains("servedTicket"), "{}", after.update);
        assert_closed(&after);
    }

    #[test]
    fn a_take_serves_a_ticket_or_requires_that_nobody_waits() {
        let take = |line| {
            let (seen, names, token) = ("ll1-x".to_owned(), EarlierNames::Seen(None), NextToken::FromRow);
            let take = Action::Take { grant: grant(), seen, held: false, reclaims: false, line, token, names };
            let take = rendered(take, &Schema::default());
            assert_closed(&take);
            take
        };
        let plain = take(LineRule::Ignored);
        let serving = take(LineRule::Serves(7));
        assert_eq!(serving.condition, plain.condition);
        assert!(serving.update.contains(", servedTicket = :ticket REMOVE"), "{}", serving.update);
        let alone = take(LineRule::NobodyWaits);
        let nobody_waits = " AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket)";
        assert_eq!(alone.condition.replace(nobody_waits, ""), plain.condition);
        assert_ne!(alone.condition, plain.condition);
        assert_eq!(alone.update, plain.update);
    }

    #[test]
    fn a_release_tells_how_long_the_lock_was_held_and_which_tickets_nobody_came_for() {
        let release = |serves| {
            let scope = Scope::Mine { grant: version().grant, up_to: version().stamp, token: Some(7) };
            let times = HoldTimes { mean: Duration::from_millis(500), spread: Duration::from_micros(40_900) };
            let (data, line) = (DataChange::Keep, Some(LineUpdate { times, serves }));
            rendered(
                Action::Release { scope, ends_at_ms: 6_000, data, keep: None, line, returns_row: false },
                &Schema::default(),
            )
        };
        let usual = release(None);
        assert_eq!(
            usual.update,
            "SET isReleased = :released, leaseEndsAt = :ends, heldMillis = :held, heldSpread = :spread REMOVE workflow"
        );
        assert_eq!(value(&usual, ":spread"), &Value::N("40".to_owned()));
        assert_closed(&usual);
        let deserted = release(Some(3));
        assert!(deserted.update.contains("servedTicket = :ticket, heldMillis"), "{}", deserted.update);
        assert_closed(&deserted);
    }
}
