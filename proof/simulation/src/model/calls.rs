//! Advances calls, and checks what must hold when they have ended.

use super::Lock;
use super::operations::{Next, grant_of, owner, replay};
use super::sometimes::count;
use super::state::{Call, Caller, Input, KEYS, Message, State, WaitsFor, print_of};
use lambda_lock_protocol::{
    Acquired, AcquiredAll, Answer, FailedAcquire, Failure, HolderSeen, Holding, Item, Released, RowRead, Sent,
    Transacted, Value, Written, schema,
};
use std::sync::Arc;

impl Lock {
    pub(super) fn begin(&self, state: &mut State, caller: usize, call: Call) {
        let held = match state.take(caller) {
            Caller::Holding(held) => held,
            _ => Vec::new(),
        };
        state.calls[caller] += 1;
        self.go_on(state, caller, call, held, Vec::new());
    }

    /// The caller's operation makes its next step.
    pub(super) fn go_on(
        &self,
        state: &mut State,
        caller: usize,
        call: Call,
        held: Vec<Holding>,
        mut inputs: Vec<Input>,
    ) {
        inputs.push(Input::Step(state.now));
        let (next, print) = replay(self.bounds.asking, caller, state.calls[caller], call, &held, &inputs);
        let waits_for = match next {
            Next::Pauses => WaitsFor::Time,
            Next::Sends(sent) => {
                state.sent[caller] += 1;
                let (call, number) = (state.calls[caller], state.sent[caller]);
                let print = print_of(&sent);
                state.messages.push(Arc::new(Message { caller, call, number, sent, print, applied: false }));
                WaitsFor::Answer(number)
            }
            Next::Acquired(acquired) => return self.acquired(state, caller, acquired),
            Next::AcquiredAll(acquired) => return self.acquired_all(state, caller, acquired),
            Next::Renewed(renewed, after) => return self.renewed(state, caller, &renewed, &held, after),
            Next::Released(released) => return self.given_back(state, &released, &held),
        };
        state.set(caller, Caller::Calling { call, held, inputs, waits_for, print });
    }

    pub(super) fn answer(&self, state: &mut State, caller: usize, answer: Answer) {
        let Caller::Calling { call, held, mut inputs, .. } = state.take(caller) else { return };
        let grant = grant_of(caller, state.calls[caller]);
        let is_ours =
            |row: &Item| matches!(row.get(schema::VERSION), Some(Value::S(version)) if version.starts_with(&grant));
        if matches!(call, Call::Acquire(_) | Call::AcquireAll) && rows_of(&answer).into_iter().any(is_ours) {
            count(&self.sometimes.recognised);
        }
        inputs.push(Input::Answer(state.now, answer));
        self.go_on(state, caller, call, held, inputs);
    }

    fn acquired(&self, state: &mut State, caller: usize, acquired: Result<Acquired, Failure>) {
        match acquired {
            Ok(Acquired::Granted { holding, .. }) => state.set(caller, Caller::Holding(vec![holding])),
            Ok(Acquired::Held(seen)) => self.held(state, caller, &seen),
            Err(Failure::OutcomeUnknown) => count(&self.sometimes.unknown),
            Err(_) => {}
        }
    }

    fn held(&self, state: &mut State, caller: usize, seen: &HolderSeen) {
        count(&self.sometimes.held);
        if seen.owner == owner(caller) && seen.observation.version().starts_with(&grant_of(caller, state.calls[caller]))
        {
            state.breaks("held by a grant of the call itself");
        }
    }

    fn acquired_all(&self, state: &mut State, caller: usize, acquired: Result<AcquiredAll, FailedAcquire>) {
        match acquired {
            Ok(AcquiredAll::Granted { holdings, .. }) => {
                let (keys, first) = (holdings.iter().map(|holding| holding.key.key()), &holdings[0]);
                let one =
                    |holding: &Holding| (holding.token, holding.newest.grant) == (first.token, first.newest.grant);
                if !keys.eq(KEYS) || !holdings.iter().all(one) {
                    state.breaks("a set that is not whole");
                }
                state.set(caller, Caller::Holding(holdings));
            }
            Ok(AcquiredAll::Held(blocked)) => {
                if blocked.by.is_empty() {
                    state.breaks("held by nobody");
                }
                for (_, seen) in &blocked.by {
                    self.held(state, caller, seen);
                }
                self.has_nothing(state, caller);
            }
            Err(FailedAcquire { failure: Failure::OutcomeUnknown, .. }) => count(&self.sometimes.unknown),
            Err(_) => self.has_nothing(state, caller),
        }
    }

    /// A call for several locks that reports that it has nothing has nothing, and gets nothing any more.
    fn has_nothing(&self, state: &mut State, caller: usize) {
        let call = state.calls[caller];
        let grant = grant_of(caller, call);
        let claims = |message: &Arc<Message>| {
            (message.caller, message.call) == (caller, call) && matches!(message.sent, Sent::Transaction(_))
        };
        let still_comes = state.messages.iter().chain(state.landing.as_ref().map(|of| &of.message)).any(claims);
        if still_comes || state.rows.iter().any(|row| row.is_held_by(&grant)) {
            state.breaks("a call that reported that it has nothing may have the locks");
        }
    }

    fn renewed(
        &self,
        state: &mut State,
        caller: usize,
        renewed: &[Result<(), Failure>],
        before: &[Holding],
        after: Vec<Holding>,
    ) {
        for (renewed, before) in renewed.iter().zip(before) {
            match renewed {
                Err(Failure::Lost) => {
                    count(&self.sometimes.lost);
                    if state.is_held_by(before) {
                        state.breaks("lost while the row is ours");
                    }
                }
                Err(Failure::OutcomeUnknown) => count(&self.sometimes.unknown),
                Ok(()) | Err(_) => {}
            }
        }
        if !renewed.contains(&Err(Failure::Lost)) {
            state.set(caller, Caller::Holding(after));
        }
    }

    fn given_back(&self, state: &mut State, released: &[Result<Released, Failure>], held: &[Holding]) {
        if held.iter().zip(released).any(|(held, released)| released.is_ok() && state.is_held_by(held)) {
            state.breaks("released while the row is ours");
        }
    }
}

/// The rows that a response shows.
fn rows_of(answer: &Answer) -> Vec<&Item> {
    match answer {
        Answer::Written(Written::Refused(row)) | Answer::Read(row) => row.iter().collect(),
        Answer::Transacted(Transacted::Refused(refusals)) => {
            refusals.iter().filter_map(|refusal| refusal.row.as_ref()).collect()
        }
        Answer::ReadAll(rows) => rows
            .iter()
            .filter_map(|row| match row {
                RowRead::Row(row) => Some(row),
                RowRead::Unread | RowRead::Missing => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}
