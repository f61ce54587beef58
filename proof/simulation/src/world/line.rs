//! P8: whoever waits in line is passed only as the promise allows.

use super::{State, nanos};
use crate::clocks::{EPOCH, Nanos};
use crate::ledger::{Call, CallId, Ended, Invariant, ProcessId, Reclaims, Written};
use crate::table::{Kind, Mark};
use lambda_lock::Refusal;
use std::time::Duration;

const MILLI: Nanos = 1_000_000;
/// For how long a free lock is left to this many who are ahead and have not given up, at least. Clocks run at different rates.
fn grace(ahead: u64) -> Nanos {
    let millis = if ahead == 0 { 0 } else { (1_500 + 500 * ahead).min(3_500) };
    millis * MILLI / 100 * 95
}

/// A ticket that was given.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    number: u64,
    given: Nanos,
    slot: usize,
    /// The call that it was given to, or to which it was brought back.
    call: CallId,
    /// Whose it is, if its caller sleeps between its calls.
    sleeper: Option<ProcessId>,
}

/// The line of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    tickets: Vec<Ticket>,
    /// Since when the lock is free, or its holder can be proven dead, at the earliest.
    takeable_since: Nanos,
    /// When others than those in line were granted the lock, since one of these was.
    lost_turns: Vec<Nanos>,
    /// When it was thawed last. Before that nobody could come.
    thawed: Nanos,
    /// The counters began again at this time. Order ends with the row.
    began: Nanos,
    /// A late copy has made the row anew. Somebody may have seen its version before, with other counters.
    is_a_ghosts: bool,
}

impl State {
    /// Whether order can be checked: nobody else writes the counters, and clocks are within their bounds.
    fn has_order(&self) -> bool {
        self.plan.peer.is_none() && self.plan.faults.spoiled == 0.0 && !self.plan.shows_clocks_behind()
    }

    /// The row was deleted, or another client or somebody by hand has written it.
    pub(super) fn line_is_over(&mut self, key: usize) {
        if let Some(line) = self.lines.get_mut(key) {
            // Whoever brings what it had lost before, and has seen nothing since, cannot tell the counters apart.
            let lost_turns = std::mem::take(&mut line.lost_turns);
            *line = Line { began: self.now, lost_turns, ..Line::default() };
        }
    }

    /// One of our writes was applied.
    pub(super) fn is_in_order(&mut self, kind: Kind, written: Written, before: Option<&Mark>, after: &Mark) {
        if written.key >= self.lines.len() {
            return;
        }
        if before.is_none() {
            self.lines[written.key].is_a_ghosts = written.late;
        }
        if let Some(before) = before.filter(|_| self.plan.faults.spoiled == 0.0) {
            let fell = after.last_ticket < before.last_ticket || after.served_ticket < before.served_ticket;
            let is_given = after.served_ticket <= after.last_ticket || self.lines[written.key].is_a_ghosts;
            if fell && self.has_order() || !is_given {
                let what = format!("{kind:?} made {after:?} of {before:?}");
                self.ledger.violate(Invariant::TicketsInOrder, what);
            }
        }
        let serves = before
            .is_some_and(|before| after.served_ticket.unwrap_or_default() > before.served_ticket.unwrap_or_default());
        let may_serve = kind == Kind::Take && !self.ledger.calls[written.call].out_of_turn;
        if serves && !may_serve && self.has_order() {
            let what = format!("{kind:?} served those who wait: {before:?} became {after:?}");
            self.ledger.violate(Invariant::TicketsInOrder, what);
        }
        // A ticket from before the counters began again may fit them, and nobody can tell.
        let is_of_before = self.ledger.calls[written.call].started < self.lines[written.key].began;
        if let Some(before) = before.filter(|_| self.has_order() && !is_of_before) {
            let own = self.lines[written.key].tickets.iter().filter(|ticket| ticket.call == written.call);
            let own: Vec<_> = own.map(|ticket| ticket.number).collect();
            let mut newly = after.left.difference(&before.left);
            if !newly.all(|ticket| kind == Kind::Leave && own.contains(ticket)) {
                let what = format!("{kind:?} of {own:?} gave up the tickets of others: {before:?} became {after:?}");
                self.ledger.violate(Invariant::TicketsInOrder, what);
            }
        }
        // By the wall clock, or by an observation.
        let ends_at = Duration::from_millis(after.ends_at_ms.unwrap_or_default()).saturating_sub(EPOCH);
        let over = (written.begun + after.lease * MILLI).min(nanos(ends_at));
        let line = &mut self.lines[written.key];
        match kind {
            Kind::Join => {
                let number = after.last_ticket.unwrap_or_default();
                // Nobody knows of a ticket that a late copy was given.
                if !written.copy {
                    let (given, slot, call) = (written.now, written.slot, written.call);
                    line.tickets.push(Ticket { number, given, slot, call, sleeper: None });
                }
                self.ledger.counts.tickets += 1;
            }
            Kind::Leave => self.ledger.counts.left += 1,
            Kind::Claim | Kind::Take => {
                if let Some(before) = before {
                    self.passes_nobody(kind, written, before, after);
                }
                let line = &mut self.lines[written.key];
                line.takeable_since = over;
                if serves {
                    line.lost_turns.clear();
                } else if before.is_some_and(|before| before.last_ticket > before.served_ticket) {
                    line.lost_turns.push(written.now);
                }
            }
            // By the row: the process that thawed it may have stood still before it sent this.
            Kind::Freeze if !after.frozen => {
                let at = Duration::from_millis(after.freeze_changed_at.unwrap_or_default()).saturating_sub(EPOCH);
                line.thawed = written.now.min(nanos(at));
            }
            Kind::Renew if !after.released => line.takeable_since = over,
            _ if after.released => line.takeable_since = line.takeable_since.min(written.begun),
            _ => {}
        }
    }

    /// A caller that has slept brings back its ticket.
    pub(crate) fn comes_back(&mut self, key: usize, id: ProcessId, call: CallId) {
        let Some(own) = self.processes[id].ticket.take() else { return };
        let Some(line) = self.lines.get_mut(key) else { return };
        match line.tickets.iter_mut().rfind(|ticket| (ticket.number, ticket.call) == own) {
            Some(ticket) => {
                (ticket.call, ticket.sleeper) = (call, Some(id));
                self.ledger.counts.brought_back += 1;
            }
            // The counters began again. Its number may fit them, and nobody can tell.
            None => self.ledger.calls[call].lost_its_place = true,
        }
    }

    /// Checks the refusal of a free lock: a line that nobody is in refuses nobody for longer than 3.5 s and the difference of the
    /// clocks, or 5.5 s where no wall clock counts.
    pub(crate) fn left_to_nobody(&mut self, call: CallId, held: &Refusal, shown: Option<&Mark>) {
        // Who has a ticket leaves the lock to those ahead.
        let has_ticket = self.lines.iter().flat_map(|line| &line.tickets).any(|ticket| ticket.call == call);
        let call = &self.ledger.calls[call];
        let Some(shown) = shown.filter(|shown| shown.released && held.waiting > 0 && !shown.frozen) else { return };
        if has_ticket || call.disturbed.is_some() || !self.has_order() {
            return;
        }
        let clocks = nanos(self.plan.skew * 2).max(2_000 * MILLI);
        let free_from = shown.ends_at_ms.max(shown.freeze_changed_at).unwrap_or_default();
        let free_from = Duration::from_millis(free_from).saturating_sub(EPOCH);
        let bound = nanos(free_from) + 3_600 * MILLI + clocks + nanos(self.plan.skew * 2);
        if call.started > bound {
            let what = format!("refused as {held:?}, {} ms too late", (call.started - bound) / MILLI);
            self.ledger.violate(Invariant::TakesWhatItMay, what);
        }
    }

    /// A response has shown a row to this call. If the lock is free, and its ticket is next or was passed, it is its turn.
    pub(super) fn sees_its_turn(&mut self, call: CallId) {
        let known = |ticket: &&Ticket| ticket.call == call && self.slots[ticket.slot].heard;
        let own = self.lines.iter().flat_map(|line| &line.tickets).rfind(known);
        // Who brings back a ticket that was passed may have given it up.
        let own = own.filter(|own| own.sleeper.is_none() && self.plan.faults.spoiled == 0.0);
        let shown = self.ledger.calls[call].shown.as_ref();
        let shown = shown.filter(|shown| shown.released && !shown.frozen && shown.own.is_some());
        let may_come = own.zip(shown).is_some_and(|(own, shown)| {
            shown.last_ticket >= Some(own.number)
                && shown.served_ticket.is_some_and(|served| ahead_of(own.number, served, shown) == 0)
        });
        self.ledger.calls[call].may_come = may_come;
    }

    /// A call whose turn it is sends a request. Nobody else hands the lock over, so it must ask for it.
    pub(super) fn comes_when_it_may(&mut self, call: CallId, kind: Kind) {
        let call = &mut self.ledger.calls[call];
        if kind == Kind::Leave {
            return;
        }
        let may_come = std::mem::take(&mut call.may_come);
        // A refusal without the row may cost a place in line.
        if may_come && matches!(kind, Kind::Peek | Kind::Join) && call.disturbed.is_none() && !call.faulted {
            let what = format!("{kind:?} follows {:?}", call.shown);
            self.ledger.violate(Invariant::ComesInTurn, what);
        }
    }

    /// Checks that a call does not report held when it may come.
    pub(crate) fn is_not_its_turn(&mut self, call: CallId, held: &Refusal) {
        let Call { may_come, disturbed, faulted, ref shown, .. } = self.ledger.calls[call];
        if may_come && disturbed.is_none() && !faulted {
            let what = format!("refused as {held:?} in its turn, after {shown:?}");
            self.ledger.violate(Invariant::ComesInTurn, what);
        }
    }

    /// Checks a grant against all who wait in line.
    fn passes_nobody(&mut self, kind: Kind, written: Written, before: &Mark, after: &Mark) {
        let call = &self.ledger.calls[written.call];
        let reclaims = !before.released && call.takes(before) || matches!(call.reclaims(), Some(Reclaims::Grant(_)));
        let had_ticket_before = call.started < self.lines[written.key].began;
        if had_ticket_before
            || !self.has_order()
            || written.late
            || written.refused
            || reclaims
            || call.out_of_turn
            || call.lost_its_place
            || before.own.is_none()
        {
            return;
        }
        let (line, served) = (&self.lines[written.key], before.served_ticket.unwrap_or_default());
        let has_ticket = line.tickets.iter().any(|ticket| ticket.call == written.call);
        let waiting = before.last_ticket > before.served_ticket;
        if kind == Kind::Claim && waiting {
            let what = format!("a Claim passed the line: {before:?} became {after:?}");
            self.ledger.violate(Invariant::InTurn, what);
            return;
        }
        let seen = call.shown.as_ref().and_then(|shown| shown.last_ticket);
        if kind == Kind::Take && waiting && !has_ticket && after.served_ticket < seen {
            let what = format!("{before:?} became {after:?}, after {:?}", call.shown);
            self.ledger.violate(Invariant::LineEnds, what);
            return;
        }
        let own = line.tickets.iter().rfind(|ticket| ticket.call == written.call && self.slots[ticket.slot].heard);
        // Who has slept with its ticket may have been told of the free lock by another call.
        let own_ticket = own.filter(|ticket| ticket.sleeper.is_none());
        let given = own_ticket.map_or(0, |ticket| ticket.given);
        // What was sent, or decided by a process that stood still, before the lock was frozen may arrive after it was thawed.
        let knows = call.shown.as_ref().is_some_and(|shown| shown.freeze_changed_at == before.freeze_changed_at);
        let thawed = if written.begun < line.thawed || !knows { 0 } else { line.thawed };
        let free_for = written.now.saturating_sub(line.takeable_since.max(thawed).max(given));
        let own = own.map(|ticket| ticket.number).filter(|number| *number <= before.last_ticket.unwrap_or_default());
        // A caller that was told of no row has no ticket any more.
        let own = own.filter(|_| kind != Kind::Claim);
        // A refusal without the row may have cost the caller its place in line.
        if own.is_some_and(|own| own > served) && after.served_ticket != own && !call.faulted {
            let what = format!("{kind:?} with ticket {own:?} made {after:?} of {before:?}");
            self.ledger.violate(Invariant::TicketsInOrder, what);
            return;
        }
        // A ticket that was passed may come at any release.
        if own.is_some_and(|own| own <= served) {
            return;
        }
        self.ledger.counts.in_turn += u64::from(own.is_some());
        let waits = |ticket: &&Ticket| {
            let call = &self.ledger.calls[ticket.call];
            let is_undisturbed = call.disturbed.is_none() && !call.faulted;
            let process = &self.processes[ticket.sleeper.unwrap_or(self.slots[ticket.slot].process)];
            let waits = call.ended == Ended::Running || process.ticket == Some((ticket.number, ticket.call));
            is_undisturbed && waits && process.alive && self.slots[ticket.slot].heard && ticket.call != written.call
        };
        let smaller = |ticket: &&Ticket| {
            let is_ahead = ticket.number > served && own.is_none_or(|own| ticket.number < own);
            is_ahead && !before.left.contains(&ticket.number)
        };
        let Some(passed) = line.tickets.iter().filter(smaller).find(waits).copied() else { return };
        // Somebody may have joined, or given up, since the call looked.
        let seen = call.shown.as_ref().filter(|shown| shown.own == before.own).unwrap_or(before);
        let last = seen.last_ticket.unwrap_or_default();
        // Who has slept, or has no ticket, may have lost some in earlier calls.
        let begun = own_ticket.map_or(0, |_| call.started);
        let lost = line.lost_turns.iter().filter(|at| **at >= begun).count() as u64;
        let allowed = grace(ahead_of(own.unwrap_or(last + 1), served, seen)).saturating_sub(500 * MILLI * lost);
        self.ledger.counts.passed += 1;
        if free_for < allowed {
            let what = format!(
                "{kind:?} with ticket {own:?} passed {passed:?}, {served} was served last, after {} ms instead of {} ms: \
                 {before:?} became {after:?}",
                free_for / MILLI,
                allowed / MILLI
            );
            self.ledger.violate(Invariant::InTurn, what);
        }
    }
}

/// How many of those ahead of this ticket have not given up.
fn ahead_of(ticket: u64, served: u64, shown: &Mark) -> u64 {
    let left = shown.left.range(..ticket).count() as u64;
    ticket.saturating_sub(served).saturating_sub(1).saturating_sub(left)
}
