//! The expressions of the line of those who wait: taking a ticket, giving it up, and serving it.

use super::{Expression, Returns};
use crate::schema::{FORMER, LEFT_TICKETS};
use crate::version::OURS;

/// The condition "nobody waits in line".
pub(super) const NOBODY_WAITS: &str = " AND (attribute_not_exists(lastTicket) OR lastTicket <= servedTicket)";
/// The condition "nobody has taken a ticket since".
const NOBODY_JOINED: &str = " AND lastTicket = :ticket";

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

    /// Lists a ticket as given up, exactly where it is still to be served and the list is as it was seen.
    pub(super) fn leave(&mut self, ticket: u64, seen: Option<&str>, then: &str) {
        self.condition.push_str("servedTicket < :ticket AND lastTicket >= :ticket AND ");
        match seen {
            Some(seen) => {
                self.condition.push_str("leftTickets = :seen");
                self.text(":seen", seen);
            }
            None => self.condition.push_str("attribute_not_exists(leftTickets)"),
        }
        self.update.push_str("SET leftTickets = :left");
        self.number(":ticket", ticket);
        self.text(":left", then);
    }

    pub(super) fn while_nobody_joined_since(&mut self) {
        self.condition.push_str(NOBODY_JOINED);
    }

    /// Serves a ticket. Returns the list of those who have given up, if it is to be removed.
    pub(super) fn serves(&mut self, ticket: u64, left: Option<&str>) -> Option<&'static str> {
        self.update.push_str(", servedTicket = :ticket");
        self.number(":ticket", ticket);
        match left? {
            "" => Some(LEFT_TICKETS),
            left => {
                self.update.push_str(", leftTickets = :left");
                self.text(":left", left);
                None
            }
        }
    }
}
