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
