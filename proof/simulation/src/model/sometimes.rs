//! Counts events that should happen sometimes. A check without violations proves nothing if they never happened.

use super::Asking;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often each event happened.
#[derive(Debug, Default)]
pub(super) struct Sometimes {
    pub(super) granted: AtomicU64,
    /// Holders replaced after their lease.
    pub(super) takeovers: AtomicU64,
    /// Own writes recognised after a lost response.
    pub(super) recognised: AtomicU64,
    /// Renewals applied after the lease had ended.
    pub(super) renewed_late: AtomicU64,
    /// Guards that learnt that their lock is lost.
    pub(super) lost: AtomicU64,
    /// Calls of unknown outcome.
    pub(super) unknown: AtomicU64,
    /// Calls refused by a holder.
    pub(super) held: AtomicU64,
    /// Late requests that were refused.
    pub(super) late_refused: AtomicU64,
    /// Grants of which no caller was told.
    pub(super) ghosts: AtomicU64,
    pub(super) released: AtomicU64,
    /// Single writes that met a transaction.
    pub(super) conflicts: AtomicU64,
    /// Refusals that reported only a part of the reasons.
    pub(super) told_in_part: AtomicU64,
    /// Copies of an accepted transaction.
    pub(super) sent_again: AtomicU64,
    pub(super) tickets: AtomicU64,
    /// Tickets of which no caller was told.
    pub(super) lost_tickets: AtomicU64,
    /// Requests for a ticket that got two.
    pub(super) joined_twice: AtomicU64,
    /// Tickets that were given up.
    pub(super) left: AtomicU64,
    /// Grants that passed a smaller ticket.
    pub(super) passed: AtomicU64,
    /// Grants to callers that had been passed.
    pub(super) late_tickets: AtomicU64,
}

impl Sometimes {
    pub(super) fn list(&self, asking: Asking) -> Vec<(&'static str, u64)> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut list = vec![
            ("granted", of(&self.granted)),
            ("taken over", of(&self.takeovers)),
            ("recognised after a lost answer", of(&self.recognised)),
            ("unknown", of(&self.unknown)),
            ("held", of(&self.held)),
            ("late requests refused", of(&self.late_refused)),
            ("grants that nobody was told of", of(&self.ghosts)),
            ("released", of(&self.released)),
        ];
        // Nobody renews in line.
        if asking == Asking::InLine {
            list.extend([
                ("tickets", of(&self.tickets)),
                ("tickets that nobody was told of", of(&self.lost_tickets)),
                ("two tickets for one request", of(&self.joined_twice)),
                ("tickets given up", of(&self.left)),
                ("granted before a smaller ticket", of(&self.passed)),
                ("granted with a ticket that was passed", of(&self.late_tickets)),
            ]);
        } else {
            list.extend([("renewed after the lease had run out", of(&self.renewed_late)), ("lost", of(&self.lost))]);
        }
        if asking == Asking::ForASet {
            list.extend([
                ("single writes that met a transaction", of(&self.conflicts)),
                ("refusals with only a part of the reasons", of(&self.told_in_part)),
                ("copies of an accepted transaction", of(&self.sent_again)),
            ]);
        }
        list
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
