//! The line of those who wait, in the model: where it begins, and what must hold of its tickets.
//!
//! While the line is open, a caller who is not next is granted the lock only when it has been free, or its holder dead, for a
//! tick at least. How long exactly is left to the [simulation](crate::run()).

use super::operations::instants;
use super::sometimes::count;
use super::state::{Call, Message, Row, State};
use super::{EPOCH, Happening, Lock, TICK};
use lambda_lock_protocol::{Action, Item, Request, Value, schema};
use stateright::Model;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The caller who holds the lock at the beginning. It asks for nothing afterwards.
const HOLDER: usize = 2;

/// What is known of the line of the lock.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Line {
    /// The tickets of which callers were told.
    tickets: Vec<Ticket>,
    /// The first tick at which the lock may be free, or its holder be proven dead.
    takeable_from: u8,
    /// A call of this caller has a ticket from before the counters began again. It may fit them, and nobody can tell.
    earlier: Option<(usize, u8)>,
}

/// A ticket of which a call was told.
#[derive(Clone, Copy, Debug, Hash)]
struct Ticket {
    number: u64,
    caller: usize,
    call: u8,
}

/// The counters on a row, and the tickets to be served whose callers have given up.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    last: Option<u64>,
    served: Option<u64>,
    left: BTreeSet<u64>,
}

impl Counters {
    pub(super) fn of(row: &Row) -> Self {
        let number = |name| row.item.as_ref().and_then(|row| number(row, name));
        let left = match row.item.as_ref().and_then(|row| row.get(schema::LEFT_TICKETS)) {
            Some(Value::Ns(left)) => left.as_slice(),
            _ => &[],
        };
        let served = number(schema::SERVED_TICKET);
        let left = left.iter().filter_map(|ticket| ticket.parse().ok());
        Self { last: number(schema::LAST_TICKET), left: left.filter(|ticket| Some(*ticket) > served).collect(), served }
    }

    /// How many come before this ticket.
    fn ahead_of(&self, ticket: u64) -> usize {
        let given = self.served.unwrap_or_default() + 1..ticket;
        given.filter(|ticket| !self.left.contains(ticket)).count()
    }
}

fn number(row: &Item, name: &str) -> Option<u64> {
    match row.get(name) {
        Some(Value::N(number)) => number.parse().ok(),
        _ => None,
    }
}

impl Lock {
    /// The lock is held. Of the two others, both are about to take tickets, one
    /// has one, both have one, the second has just passed the first, the first gives up, none has begun and the
    /// lease is nearly over, or one has a ticket from before the row was deleted.
    pub(super) fn lines(&self) -> Vec<State> {
        let begins = |caller| Happening::Begins(caller, Call::Acquire(0));
        let held = [begins(HOLDER), Happening::Answered(0)];
        let mut state = self.after(State::new(), &held);
        state = self.after(state, &[Happening::Begins(HOLDER, Call::Release), Happening::Answered(0)]);
        // The release is long past.
        let known = [(schema::ENDS, EPOCH), (schema::LAST_TICKET, 1), (schema::SERVED_TICKET, 1)];
        let tells = |state: &mut State| {
            for (name, number) in known {
                if let Some(row) = &mut Arc::make_mut(&mut state.rows[0]).item {
                    row.set(name, Value::N(number.to_string()));
                }
            }
        };
        tells(&mut state);
        state.line = Line::default();
        state = self.after(state, &held);
        let first = self.after(state.clone(), &[begins(0), Happening::Answered(0)]);
        let about = self.after(first.clone(), &[begins(1), Happening::Answered(1)]);
        let one = self.after(first, &[Happening::Answered(0)]);
        let both = self.after(one.clone(), &[begins(1), Happening::Answered(0), Happening::Answered(0)]);
        let released = [Happening::Begins(HOLDER, Call::Release), Happening::Answered(0)];
        let looks = [Happening::GoesOn(1), Happening::Answered(0)];
        let passed = [&released[..], &looks, &[Happening::Tick], &looks, &[Happening::Answered(0)]].concat();
        let passed = self.after(both.clone(), &passed);
        // The time of the first is over.
        let looks_of_first = [const { [Happening::GoesOn(0), Happening::Answered(0)] }; 4].concat();
        let leaves = self.after(both.clone(), &looks_of_first);
        let ticks = [const { Happening::Tick }; 3];
        let late = self.after(state, &ticks);
        // As many tickets were served since then as were served before.
        let mut again = self.after(one.clone(), &released);
        again.rows[0] = Arc::default();
        again = self.after(again, &held);
        again = self.after(again, &released);
        tells(&mut again);
        again = self.after(again, &held);
        again.line =
            Line { takeable_from: again.line.takeable_from, earlier: Some((0, again.calls[0])), ..Line::default() };
        vec![about, one, both, passed, leaves, late, again]
    }

    /// The state after these events. One that a known mistake makes impossible is left out.
    fn after(&self, mut state: State, events: &[Happening]) -> State {
        for event in events {
            let mut possible = Vec::new();
            self.actions(&state, &mut possible);
            if possible.contains(event) || matches!(event, Happening::Begins(HOLDER, _)) {
                state = self.next_state_of(&state, event.clone()).unwrap_or(state);
            }
        }
        state
    }

    /// Checks what an applied write made of the counters, and of the order of tickets.
    pub(super) fn note_line(
        &self,
        state: &mut State,
        message: &Message,
        request: &Request,
        before: Counters,
        heard: bool,
    ) {
        let row = state.row(&request.key);
        let (after, is_released) = (Counters::of(row), row.is_released());
        let ends_at = row.item.as_ref().and_then(|row| number(row, schema::ENDS)).unwrap_or_default();
        if after.last < before.last || after.served < before.served {
            state.breaks("a counter fell");
        }
        if after.served > after.last {
            state.breaks("a ticket was served that was not given");
        }
        match &request.action {
            Action::Join { .. } => {
                if !is_released || before.last > before.served {
                    self.joined(state, message, after, heard);
                } else {
                    state.breaks("a ticket was given for a lock that is free");
                }
            }
            Action::Leave { ticket } => {
                count(&self.sometimes.left);
                let of_call =
                    |own: &Ticket| (own.number, own.caller, own.call) == (*ticket, message.caller, message.call);
                if !state.line.tickets.iter().any(of_call)
                    || !after.left.difference(&before.left).all(|one| one == ticket)
                {
                    state.breaks("the ticket of another was given up");
                }
            }
            Action::Claim { .. } | Action::Take { .. } => self.granted(state, message, &before, &after),
            _ if after.served != before.served => state.breaks("a ticket was served without a grant"),
            _ => {}
        }
        // The end of the lease, by the clock of the caller who wrote it.
        let ends_in = Duration::from_millis(ends_at.saturating_sub(EPOCH))
            .saturating_sub(instants(message.caller, 0).wall - Duration::from_millis(EPOCH));
        let ends_at = (ends_in.as_millis() / TICK.as_millis()) as u8;
        state.line.takeable_from = match &request.action {
            Action::Release { .. } => state.line.takeable_from.min(state.now),
            Action::Join { .. } | Action::Leave { .. } => state.line.takeable_from,
            _ => ends_at,
        };
    }

    fn joined(&self, state: &mut State, message: &Message, after: Counters, heard: bool) {
        count(&self.sometimes.tickets);
        if message.applied {
            count(&self.sometimes.joined_twice);
        }
        if !heard {
            count(&self.sometimes.lost_tickets);
            return;
        }
        let number = after.last.unwrap_or_default();
        if state.line.tickets.iter().any(|ticket| ticket.number == number) {
            state.breaks("two callers have the same ticket");
        }
        let ticket = Ticket { number, caller: message.caller, call: message.call };
        state.line.tickets.push(ticket);
    }

    /// Checks a grant against the tickets of which callers were told.
    fn granted(&self, state: &mut State, message: &Message, before: &Counters, after: &Counters) {
        let of_call = |ticket: &&Ticket| (ticket.caller, ticket.call) == (message.caller, message.call);
        let own = state.line.tickets.iter().rfind(of_call).map(|ticket| ticket.number);
        let served = before.served.unwrap_or_default();
        if state.line.earlier == Some((message.caller, message.call)) {
            return;
        }
        let free_for = state.now.saturating_sub(state.line.takeable_from);
        match own {
            None if before.ahead_of(before.last.unwrap_or_default() + 1) > 0 && free_for < 1 => {
                state.breaks("a caller without a ticket was granted the lock before the line");
            }
            None if before.last > before.served && after.served <= before.served => {
                state.breaks("a grant without a ticket left the line as it was");
            }
            None => {}
            Some(own) if own <= served => {
                count(&self.sometimes.late_tickets);
                if after.served != before.served {
                    state.breaks("a ticket that was passed was counted as served");
                }
            }
            Some(own) => {
                if after.served != Some(own) {
                    state.breaks("a grant by ticket did not serve its ticket");
                }
                if before.ahead_of(own) > 0 {
                    count(&self.sometimes.passed);
                    if free_for < 1 {
                        state.breaks("a caller passed those ahead of it at once");
                    }
                }
            }
        }
    }
}
