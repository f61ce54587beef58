//! The expressions of the line of those who wait: taking a ticket, giving it up, and serving it.

use super::{Expression, Returns};
use crate::line::MAX_LEFT;
use crate::schema::FORMER;
use crate::version::OURS;

/// The condition "nobody waits in line".
pub(super) const NOBODY_WAITS: &str = " AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket)";
/// The condition "nobody has taken a ticket since".
pub(super) const NOBODY_JOINED: &str = " AND lastTicket = :ticket";

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
        self.remove(&FORMER.map(Some));
        self.text(":ours", OURS);
        self.number(":zero", 0);
        self.number(":one", 1);
        self.returns = Returns::AllNew;
    }

    /// Lists a ticket as given up, exactly where it is still to be served and the list has room.
    pub(super) fn leave(&mut self, ticket: u64) {
        self.condition.push_str(
            "servedTicket < :ticket AND lastTicket >= :ticket AND \
             (attribute_not_exists(leftTickets) OR size(leftTickets) < :most)",
        );
        self.update.push_str("ADD leftTickets :own");
        self.number(":ticket", ticket);
        self.number(":most", MAX_LEFT);
        self.numbers(":own", &[ticket]);
    }

    pub(super) fn serves(&mut self, ticket: u64) {
        self.update.push_str(", servedTicket = :ticket");
        self.number(":ticket", ticket);
    }

    /// Takes tickets off the list of those who have given up. A set without members is none.
    pub(super) fn lists_no_more(&mut self, tickets: &[u64]) {
        if !tickets.is_empty() {
            self.update.push_str(" DELETE leftTickets :over");
            self.numbers(":over", tickets);
        }
    }
}
