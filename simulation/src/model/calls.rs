//! Advances calls, and checks what must hold when they have ended.

use super::Lock;
use super::operations::{Next, replay};
use super::sometimes::count;
use super::state::{Call, Caller, Input, Message, State, WaitsFor, print_of};
use lambda_lock::protocol::{Acquired, Answer, Failure, Holding, Released, Value, schema};

impl Lock {
    pub(super) fn begin(&self, state: &mut State, caller: usize, call: Call) {
        let held = match std::mem::replace(&mut state.callers[caller], Caller::Idle) {
            Caller::Holding(holding) => Some(holding),
            _ => None,
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
        held: Option<Holding>,
        mut inputs: Vec<Input>,
    ) {
        inputs.push(Input::Step(state.now));
        let (next, print) = replay(caller, state.calls[caller], call, held.as_ref(), &inputs);
        let waits_for = match next {
            Next::Pauses => WaitsFor::Time,
            Next::Sends(request) => {
                state.sent[caller] += 1;
                let number = state.sent[caller];
                let print = print_of(&request);
                state.messages.push(Message { caller, number, request, print });
                WaitsFor::Answer(number)
            }
            Next::Acquired(acquired) => return self.acquired(state, caller, acquired),
            Next::Renewed(renewed, after) => return self.renewed(state, caller, renewed, held, after),
            Next::Released(released) => return self.given_back(state, &released, held),
        };
        state.callers[caller] = Caller::Calling { call, held, inputs, waits_for, print };
    }

    pub(super) fn answer(&self, state: &mut State, caller: usize, answer: Answer) {
        let Caller::Calling { call, held, mut inputs, .. } =
            std::mem::replace(&mut state.callers[caller], Caller::Idle)
        else {
            return;
        };
        if let (Call::Acquire, Answer::ConditionFailed(Some(row)) | Answer::Found(Some(row))) = (call, &answer)
            && let Some(Value::S(version)) = row.get(schema::VERSION)
            && version.starts_with(&self.grant_of(state, caller)[..6])
        {
            count(&self.sometimes.recognised);
        }
        inputs.push(Input::Answer(state.now, answer));
        self.go_on(state, caller, call, held, inputs);
    }

    fn acquired(&self, state: &mut State, caller: usize, acquired: Result<Acquired, Failure>) {
        match acquired {
            Ok(Acquired::Granted { holding, .. }) => state.callers[caller] = Caller::Holding(*holding),
            Ok(Acquired::Held(seen)) => {
                count(&self.sometimes.held);
                if seen.owner == format!("caller {caller}")
                    && seen.observation.version().contains(&self.grant_of(state, caller))
                {
                    state.breaks("held by a grant of the call itself");
                }
            }
            Err(Failure::OutcomeUnknown) => count(&self.sometimes.unknown),
            Err(_) => {}
        }
    }

    /// The first part of the versions that the caller's present call writes. It is made of the caller's number and the
    /// call's number.
    fn grant_of(&self, state: &State, caller: usize) -> String {
        format!("ll1-{:02x}00", state.calls[caller]) + &format!("{:02x}", caller + 1)
    }

    fn renewed(
        &self,
        state: &mut State,
        caller: usize,
        renewed: Result<(), Failure>,
        before: Option<Holding>,
        after: Holding,
    ) {
        let Some(before) = before else { return };
        if renewed == Err(Failure::Lost) {
            count(&self.sometimes.lost);
            if state.is_held_by(&before) {
                state.breaks("lost while the row is ours");
            }
            return;
        }
        if renewed == Err(Failure::OutcomeUnknown) {
            count(&self.sometimes.unknown);
        }
        state.callers[caller] = Caller::Holding(after);
    }

    fn given_back(&self, state: &mut State, released: &Result<Released, Failure>, held: Option<Holding>) {
        if held.is_some_and(|held| released.is_ok() && state.is_held_by(&held)) {
            state.breaks("released while the row is ours");
        }
    }
}
