//! Mistakes in the expressions of requests. They are made in the finished expression.

use crate::mistakes::{self, Mistake};
use crate::{Action, Expression, OURS, Request, Value, Version};
use std::cell::Cell;

/// The versions of a grant up to a stamp.
const UP_TO: &str = "recordVersionNumber BETWEEN :first AND :rvn";
/// All versions of a grant.
const ANY_STAMP: &str = "begins_with(recordVersionNumber, :first)";
const WITH_TOKEN: &str = " AND fencingToken = :token";
const NOT_FROZEN: &str = " AND attribute_not_exists(freezeReason)";
const NOT_FROZEN_OR_HELD: &str = " AND (attribute_not_exists(freezeReason) OR attribute_not_exists(isReleased))";
const NOBODY_WAITS: &str = " AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket)";
const HELD_OR_WAITED_FOR: &str = " AND (attribute_not_exists(isReleased) OR lastTicket > servedTicket)";
const OR_DEAD: &str = " OR leaseEndsAt < :trusted)";
const ANY_ROW: &str = "attribute_exists(recordVersionNumber)";

thread_local! {
    static SEEN: Cell<Option<Version>> = const { Cell::new(None) };
}

/// Remembers the version that the next renewal is based on.
pub(crate) fn note(seen: Version) {
    SEEN.set(Some(seen));
}

/// The expression of this request with the mistake that is switched on.
pub(crate) fn mistaken(mut out: Expression, request: &Request) -> Expression {
    let Some(mistake) = mistakes::current() else { return out };
    let in_transaction = request.transaction.is_some();
    let Expression { condition, update, values, .. } = &mut out;
    match (mistake, &request.action) {
        (Mistake::SetWithoutTokenClause, Action::Claim { .. } | Action::Take { .. }) => {
            change(condition, " AND (attribute_not_exists(fencingToken) OR fencingToken < :token)", "");
        }
        (Mistake::SetKeyWithoutCondition, Action::Claim { .. })
            if in_transaction && request.key.key().ends_with('1') =>
        {
            "attribute_not_exists(ownerName) OR attribute_exists(ownerName)".clone_into(condition);
        }
        (Mistake::ClaimOfPeersRows, Action::Claim { .. }) => {
            change(condition, "begins_with(recordVersionNumber, :ours) AND ", "");
        }
        (Mistake::ClaimIgnoresWhenReleased, Action::Claim { .. }) => change(condition, " AND leaseEndsAt <= :now", ""),
        (Mistake::ClaimLeavesAttributes, Action::Claim { .. }) => {
            change(condition, " AND attribute_not_exists(attributeNames)", "");
            change(condition, " AND (attribute_not_exists(attributeNames) OR attributeNames = :names)", "");
        }
        (Mistake::TakeOfAnyVersion, Action::Take { .. }) => {
            change(condition, "= :seen", "<> :seen OR recordVersionNumber = :seen");
        }
        (Mistake::TakeKeepsReleased, Action::Take { .. }) => {
            change(update, "REMOVE isReleased, ", "REMOVE ");
            change(update, " REMOVE isReleased", "");
        }
        (Mistake::RenewOnExactVersion, Action::Renew { .. }) => {
            change(condition, UP_TO, "recordVersionNumber = :first");
            if let Some(seen) = SEEN.get() {
                give(values, ":first", seen.text());
            }
        }
        (Mistake::RenewWithoutUpperBound, Action::Renew { .. }) => change(condition, UP_TO, ANY_STAMP),
        (Mistake::CommitWithoutUpperBound, Action::Renew { .. }) if in_transaction => {
            change(condition, UP_TO, ANY_STAMP);
        }
        (Mistake::RenewWithoutToken, Action::Renew { .. }) => change(condition, WITH_TOKEN, ""),
        (Mistake::RenewShortens, Action::Renew { .. }) => change(condition, " AND leaseEndsAt <= :ends", ""),
        (Mistake::ReleaseUnconditional, Action::Release { .. })
        | (Mistake::SettleUnconditional, Action::Settle { .. }) => ANY_ROW.clone_into(condition),
        (Mistake::ReleaseOfUnseenVersions, Action::Release { .. }) => change(condition, UP_TO, ANY_STAMP),
        (Mistake::BreakOfAnyVersion, Action::Break { .. }) => change(condition, "recordVersionNumber = :seen", ANY_ROW),
        (Mistake::ClaimIgnoresFreeze, Action::Claim { .. }) | (Mistake::TakeIgnoresFreeze, Action::Take { .. }) => {
            change(condition, NOT_FROZEN_OR_HELD, "");
            change(condition, NOT_FROZEN, "");
        }
        (Mistake::ClaimIgnoresLine, Action::Claim { .. }) => change(condition, NOBODY_WAITS, ""),
        (Mistake::DeadHolderIgnoresLine, Action::Claim { .. }) => {
            let with_line = format!("{OR_DEAD}{NOBODY_WAITS}");
            change(condition, &with_line, &format!("{NOBODY_WAITS}{OR_DEAD}"));
        }
        (Mistake::TakeoverIgnoresLine, Action::Take { .. }) => change(condition, NOBODY_WAITS, ""),
        (Mistake::JoinOnFreeRowSleeps, Action::Join { .. }) => change(condition, HELD_OR_WAITED_FOR, ""),
        (Mistake::GrantServesNoTicket, Action::Take { .. }) => {
            change(update, ", servedTicket = :ticket", "");
        }
        (Mistake::FreezeOutOfOrder, Action::Freeze { .. } | Action::Thaw { .. }) => {
            change(condition, " AND freezeChangedAt = :seen", "");
            change(condition, " AND attribute_not_exists(freezeChangedAt)", "");
        }
        (Mistake::FenceWithoutGrant, Action::Fence { .. }) => {
            change(condition, WITH_TOKEN, "");
            give(values, ":first", OURS.to_owned());
            give(values, ":last", format!("{OURS}g"));
        }
        _ => {}
    }
    drop_unused(&mut out);
    out
}

fn change(text: &mut String, right: &str, wrong: &str) {
    *text = text.replace(right, wrong);
}

fn give(values: &mut [(&'static str, Value)], name: &str, text: String) {
    for (_, value) in values.iter_mut().filter(|(known, _)| *known == name) {
        *value = Value::S(text.clone());
    }
}

/// Removes unused values and names, because DynamoDB refuses a request that has them.
fn drop_unused(expression: &mut Expression) {
    let Expression { update, condition, names, values, .. } = expression;
    let between_words = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, ':' | '#');
    let words: Vec<&str> = update.split(between_words).chain(condition.split(between_words)).collect();
    names.retain(|(name, _)| words.contains(name));
    values.retain(|(name, _)| words.contains(name));
}
