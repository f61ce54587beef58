//! The line of those who wait, in the model: where it begins, and what must hold of its tickets.
//!
//! The time of the model is too short for a line that nobody is in any more. So while the line is open, the lock is granted
//! only to callers with tickets. A ticket that is not next is granted only when the lock has been free, or its holder dead,
//! for a tick at least. How long exactly is left to the [simulation](crate::run()).

use super::operations::instants;
use super::sometimes::count;
use super::state::{Call, Message, Row, State};
use super::{EPOCH, Happening, Lock, TICK};
use lambda_lock_protocol::{Action, Item, Request, Value, schema};
use stateright::Model;
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

/// The counters on a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    last: Option<u64>,
    served: Option<u64>,
}

impl Counters {
    pub(super) fn of(row: &Row) -> Self {
        let number = |name| row.item.as_ref().and_then(|row| number(row, name));
        Self { last: number(schema::LAST_TICKET), served: number(schema::SERVED_TICKET) }
    }

    fn is_open(self) -> bool {
        self.last > self.served
    }
}

fn number(row: &Item, name: &str) -> Option<u64> {
    match row.get(name) {
        Some(Value::N(number)) => number.parse().ok(),
        _ => None,
    }
}

impl Lock {
    /// The lock is held, and its row tells for how long holders hold it. Of the two others, both are about to take tickets, one
    /// has one, both have one, the second has just passed the first, none has begun and the lease is nearly over, or one has a
    /// ticket from before the row was deleted.
    pub(super) fn lines(&self) -> Vec<State> {
        let begins = |caller| Happening::Begins(caller, Call::Acquire(0));
        let held = [begins(HOLDER), Happening::Answered(0)];
        let mut state = self.after(State::new(), &held);
        state = self.after(state, &[Happening::Begins(HOLDER, Call::Release), Happening::Answered(0)]);
        // Times so regular that a caller ahead is waited for no longer than a tick. The release is long past.
        let known = [
            (schema::ENDS, EPOCH),
            (schema::LAST_TICKET, 1),
            (schema::SERVED_TICKET, 1),
            (schema::HELD_MILLIS, 100),
            (schema::HELD_SPREAD, 15),
        ];
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
        vec![about, one, both, passed, late, again]
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
        was_held: bool,
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
                if !is_released || before.is_open() {
                    self.joined(state, message, after, heard);
                } else {
                    state.breaks("a ticket was given for a lock that is free");
                }
            }
            Action::Claim { .. } | Action::ClaimInTurn { .. } | Action::Take { .. } => {
                if matches!(request.action, Action::ClaimInTurn { .. }) {
                    count(&self.sometimes.in_turn);
                    if was_held {
                        state.breaks("a grant in turn while the lock is held");
                    }
                }
                self.granted(state, message, before, after);
            }
            _ if after.served != before.served => state.breaks("a ticket was served without a grant"),
            _ => {}
        }
        // The end of the lease, by the clock of the caller who wrote it.
        let ends_in = Duration::from_millis(ends_at.saturating_sub(EPOCH))
            .saturating_sub(instants(message.caller, 0).wall - Duration::from_millis(EPOCH));
        let ends_at = (ends_in.as_millis() / TICK.as_millis()) as u8;
        state.line.takeable_from = match &request.action {
            Action::Release { .. } => state.line.takeable_from.min(state.now),
            Action::Join { .. } => state.line.takeable_from,
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
    fn granted(&self, state: &mut State, message: &Message, before: Counters, after: Counters) {
        let of_call = |ticket: &&Ticket| (ticket.caller, ticket.call) == (message.caller, message.call);
        let own = state.line.tickets.iter().rfind(of_call).map(|ticket| ticket.number);
        let served = before.served.unwrap_or_default();
        if state.line.earlier == Some((message.caller, message.call)) {
            return;
        }
        match own {
            None if before.is_open() => state.breaks("a caller without a ticket was granted the lock before the line"),
            None if after.served != before.served => state.breaks("a grant without a ticket served one"),
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
                if own > served + 1 {
                    count(&self.sometimes.passed);
                    if state.now <= state.line.takeable_from {
                        state.breaks("a caller passed those ahead of it at once");
                    }
                }
            }
        }
    }
}
