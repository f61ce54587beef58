//! Requests that reach the table, and checks of what they wrote.

use super::sometimes::count;
use super::state::{Message, State, print_of, sorted};
use super::{Lock, SETTINGS};
use crate::expression;
use crate::expression::Outcome;
use lambda_lock::protocol::{Action, Answer, Expression, Item, Value};

impl Lock {
    /// A request reaches the table.
    pub(super) fn apply(&self, state: &mut State, message: &Message, heard: bool) -> Answer {
        if message.request.action == Action::Peek {
            return Answer::Found(state.row.clone());
        }
        let expression = Expression::of(&message.request, &SETTINGS.schema);
        let (before, released) = (state.version().map(str::to_owned), state.is_released());
        let (token, alive) = (state.token_on_row(), state.row.is_some() && !released);
        let outcome = expression::update(&expression, &mut state.row, || {
            let mut made = Item::default();
            made.set("key", Value::S("k".to_owned()));
            made
        });
        let Outcome::Applied(returned) = outcome else {
            if !heard {
                count(&self.sometimes.late_refused);
            }
            return Answer::ConditionFailed(state.row.clone());
        };
        state.row_print = print_of(&sorted(&state.row));
        self.note(state, message, before, (token, alive));
        if !heard && matches!(message.request.action, Action::Claim { .. } | Action::Take { .. }) {
            count(&self.sometimes.ghosts);
        }
        Answer::Applied(returned)
    }

    /// Checks an applied write.
    fn note(&self, state: &mut State, message: &Message, before: Option<String>, (token, alive): (u64, bool)) {
        let grant = |version: &str| version[..36].to_owned();
        match &message.request.action {
            Action::Claim { .. } | Action::Take { .. } => {
                count(&self.sometimes.granted);
                if alive {
                    count(&self.sometimes.takeovers);
                }
                let new = state.token_on_row();
                if new <= state.token {
                    state.breaks("a token that is not larger than all before");
                }
                state.token = state.token.max(new);
            }
            Action::Renew { version, token: own, .. } => {
                if before.as_deref().map(grant) != Some(grant(&version.to_string())) || token != *own {
                    state.breaks("a renewal of another grant");
                }
                if !state.says_mine(message.caller) {
                    count(&self.sometimes.renewed_late);
                }
            }
            Action::Release { scope: lambda_lock::protocol::Scope::Mine { grant: own, token: of, .. }, .. } => {
                count(&self.sometimes.released);
                let is = before.is_some_and(|before| before[..37] == own.first_version()[..37]);
                if !is || of.is_some_and(|of| of != token) {
                    state.breaks("a release of another grant");
                }
            }
            _ => {}
        }
    }
}
