//! Requests that reach the table, and checks of what they wrote.

use super::line::Counters;
use super::sometimes::count;
use super::state::{Landing, Message, State, print_of, sorted};
use super::{Asking, Lock, SETTINGS};
use crate::expression;
use crate::expression::Outcome;
use lambda_lock_protocol::{
    Action, Answer, Expression, Fault, Item, LockKey, Refusal, Request, RowRead, Scope, Sent, Transacted, Value,
    Written,
};
use std::sync::Arc;

impl Lock {
    /// A request reaches the table. Returns its response, but for a transaction that is accepted: its response follows
    /// when it has reached all of its rows.
    pub(super) fn apply(&self, state: &mut State, message: Arc<Message>, heard: bool) -> Option<Answer> {
        match &message.sent {
            Sent::Write(request) if state.is_taken(&request.key) => {
                count(&self.sometimes.conflicts);
                Some(Answer::Fault(Fault::Throttled))
            }
            Sent::Write(request) => Some(Answer::Written(self.write(state, &message, request, heard))),
            Sent::Read(key) => Some(Answer::Read(state.row(key).item.clone())),
            Sent::ReadAll(keys) => {
                let row = |key: &LockKey| state.row(key).item.clone().map_or(RowRead::Missing, RowRead::Row);
                Some(Answer::ReadAll(keys.iter().map(row).collect()))
            }
            Sent::Transaction(requests) => {
                let requests = requests.clone();
                self.decide(state, message, requests, heard)
            }
        }
    }

    /// DynamoDB accepts a transaction, or refuses it.
    fn decide(&self, state: &mut State, message: Arc<Message>, requests: Vec<Request>, heard: bool) -> Option<Answer> {
        let id = requests.first().and_then(|request| request.transaction.clone())?;
        if state.landing.is_some() {
            // DynamoDB reports that a copy is in progress.
            return Some(Answer::Fault(if state.accepted.contains(&id) { Fault::Unknown } else { Fault::Throttled }));
        }
        if state.accepted.contains(&id) {
            count(&self.sometimes.sent_again);
            return Some(Answer::Transacted(Transacted::Applied));
        }
        let refusal = |(index, request): (usize, &Request)| {
            let row = &state.row(&request.key).item;
            let holds = expression::holds(&Expression::of(request, &SETTINGS.schema), row.as_ref());
            (!holds).then(|| Refusal { index, row: row.clone() })
        };
        let refusals: Vec<_> = requests.iter().enumerate().filter_map(refusal).collect();
        if !refusals.is_empty() {
            if !heard {
                count(&self.sometimes.late_refused);
            }
            return Some(Answer::Transacted(Transacted::Refused(refusals)));
        }
        state.accepted.push(id);
        state.landing = Some(Box::new(Landing { message, left: requests, heard }));
        None
    }

    /// A write of the accepted transaction reaches its row.
    pub(super) fn land(&self, state: &mut State, index: usize) {
        let Some(mut landing) = state.landing.take() else { return };
        let request = landing.left.remove(index);
        let (caller, heard) = (landing.message.caller, landing.heard);
        if !matches!(self.write(state, &landing.message, &request, heard), Written::Applied(_)) {
            state.breaks("a transaction was accepted, and then applied in part");
        }
        if !landing.left.is_empty() {
            state.landing = Some(landing);
        } else if heard && state.waits_for(&landing.message) {
            self.answer(state, caller, Answer::Transacted(Transacted::Applied));
        }
    }

    fn write(&self, state: &mut State, message: &Message, request: &Request, heard: bool) -> Written {
        let expression = Expression::of(request, &SETTINGS.schema);
        let row = state.row_mut(&request.key);
        let (before, released) = (row.version().map(str::to_owned), row.is_released());
        let (token, alive) = (row.token(), row.item.is_some() && !released);
        let counters = Counters::of(row);
        let outcome = expression::update(&expression, &mut row.item, || {
            let mut made = Item::default();
            made.set("key", Value::S(request.key.key().to_owned()));
            made
        });
        let Outcome::Applied(returned) = outcome else {
            if !heard {
                count(&self.sometimes.late_refused);
            }
            return Written::Refused(row.item.clone());
        };
        row.print = print_of(&sorted(&row.item));
        self.note(state, message.caller, request, before, (token, alive));
        if self.bounds.asking == Asking::InLine {
            self.note_line(state, message, request, counters, heard);
        }
        if !heard && matches!(request.action, Action::Claim { .. } | Action::Take { .. }) {
            count(&self.sometimes.ghosts);
        }
        Written::Applied(returned)
    }

    /// Checks an applied write.
    fn note(
        &self,
        state: &mut State,
        caller: usize,
        request: &Request,
        before: Option<String>,
        (token, alive): (u64, bool),
    ) {
        let grant = |version: &str| version[..36].to_owned();
        match &request.action {
            Action::Claim { .. } | Action::Take { .. } => {
                count(&self.sometimes.granted);
                if alive {
                    count(&self.sometimes.takeovers);
                }
                let row = state.row_mut(&request.key);
                let new = row.token();
                let grows = new > row.largest_token;
                row.largest_token = row.largest_token.max(new);
                if !grows {
                    state.breaks("a token that is not larger than all before");
                }
            }
            Action::Renew { version, token: own, .. } => {
                if before.as_deref().map(grant) != Some(grant(&version.to_string())) || token != *own {
                    state.breaks("a renewal of another grant");
                }
                if !state.says_mine(caller) {
                    count(&self.sometimes.renewed_late);
                }
            }
            Action::Release { scope: Scope::Mine { up_to, token: of }, .. } => {
                count(&self.sometimes.released);
                let is = before.is_some_and(|before| before[..37] == up_to.grant.first_version()[..37]);
                if !is || of.is_some_and(|of| of != token) {
                    state.breaks("a release of another grant");
                }
            }
            _ => {}
        }
    }
}
