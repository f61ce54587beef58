//! The table: single writes, transactions that take time, and reads.

use super::ledger::Grants;
use super::world::{Event, MILLI, Nanos, State};
use crate::expression;
use crate::table::{self, TOKEN_MEMORY, Typed};
use lambda_lock_protocol::{
    Action, Answer, Expression, FailedWrite, Fault, Item, LockKey, Refusal, Request, RowRead, Sent, Transacted,
    TransactionId, Value, Version, Written, schema,
};

/// A write of a transaction on its way to its row.
#[derive(Debug)]
pub(super) struct Pending {
    request: Request,
    copy: bool,
    process: usize,
}

/// What DynamoDB knows of transactions.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    applied: Vec<(TransactionId, Nanos)>,
    /// The rows that a transaction has at the moment, each until then.
    taken: Vec<(LockKey, Nanos)>,
}

impl Transactions {
    fn has(&self, key: &LockKey, now: Nanos) -> bool {
        self.taken.iter().any(|(taken, until)| taken == key && *until >= now)
    }

    fn knows(&self, id: &TransactionId, now: Nanos) -> bool {
        let memory = super::world::nanos(TOKEN_MEMORY);
        self.applied.iter().any(|(known, at)| known == id && at + memory > now)
    }
}

impl State {
    pub(super) fn arrives(&mut self, slot: usize, sent: Sent, number: Option<usize>, copy: bool, mute: bool) {
        self.transactions.taken.retain(|(_, until)| *until >= self.now);
        let now = self.now;
        let (at, answer) = match sent {
            Sent::Write(request) => (now, self.single(&request, slot, copy, mute)),
            Sent::Transaction(requests) => self.together(&requests, number, slot, copy, mute),
            Sent::Read(key) => (now, Answer::Read(self.rows.get(&key).cloned())),
            Sent::ReadAll(keys) => {
                let mut rows = Vec::new();
                for key in &keys {
                    rows.push(match self.rows.get(key).cloned() {
                        _ if self.chance(self.plan.unprocessed) => RowRead::Unread,
                        Some(row) => RowRead::Row(row),
                        None => RowRead::Missing,
                    });
                }
                (now, Answer::ReadAll(rows))
            }
        };
        self.answers(slot, at, answer, copy);
    }

    fn single(&mut self, request: &Request, slot: usize, copy: bool, mute: bool) -> Answer {
        let conflict = self.transactions.has(&request.key, self.now);
        if conflict || self.chance(self.plan.conflict / 4.0) {
            self.ledger.counts.single_conflicts += 1;
            return Answer::Fault(Fault::Throttled);
        }
        let process = self.slots[slot].process;
        match self.write(request, process, copy).written() {
            Ok(Written::Refused(Some(_))) if mute => Answer::Written(Written::Refused(None)),
            Ok(written) => Answer::Written(written),
            Err(fault) => Answer::Fault(fault),
        }
    }

    /// Applies a request to its row, and enters it into the ledger.
    fn write(&mut self, request: &Request, process: usize, copy: bool) -> table::Answer {
        let mut typed = Typed::of(request, Vec::new(), &self.settings.schema);
        typed.transaction = None;
        let answer = self.rows.carry_out(&typed);
        if let table::Answer::Applied(_) = answer {
            let key = self.index_of(&request.key);
            let row = self.rows.get(&request.key).cloned();
            self.say(|_| format!("  {} is written by process {process}, copy: {copy}", request.key));
            if matches!(request.action, Action::Claim { .. } | Action::Take { .. }) {
                self.ledger.granted(key, row.as_ref(), copy);
            }
            let now = self.now;
            self.ledger.is_held(key, is_held(row.as_ref()), now);
        }
        answer
    }

    fn together(
        &mut self,
        requests: &[Request],
        number: Option<usize>,
        slot: usize,
        copy: bool,
        mute: bool,
    ) -> (Nanos, Answer) {
        let now = self.now;
        let Some(id) = requests.first().and_then(|request| request.transaction.clone()) else {
            return (now, Answer::Fault(Fault::Unknown));
        };
        if self.transactions.knows(&id, now) {
            self.ledger.counts.transactions_again += 1;
            return (now, Answer::Transacted(Transacted::Applied));
        }
        let mut reasons = Vec::new();
        for request in requests {
            let taken = self.transactions.has(&request.key, now) || self.chance(self.plan.conflict / 2.0);
            let expression = Expression::of(request, &self.settings.schema);
            let holds = expression::holds(&expression, self.rows.get(&request.key));
            reasons.push((taken, holds));
        }
        let all_hold = reasons.iter().all(|(taken, holds)| !taken && *holds);
        let own_refused = number.is_some() && self.chance(self.plan.writes_refused);
        if all_hold && !own_refused {
            return self.accepted(requests, &id, number, slot, copy);
        }
        // It holds what it found free for a moment.
        for (request, (taken, _)) in requests.iter().zip(&reasons) {
            if !taken && self.rng.bool() {
                let until = now + self.rng.u64(..5 * MILLI);
                self.transactions.taken.push((request.key.clone(), until));
            }
        }
        self.ledger.counts.sets_refused += 1;
        let mut told = Vec::new();
        for (index, (request, (taken, holds))) in requests.iter().zip(&reasons).enumerate() {
            if !taken && !holds && (self.calm || self.rng.u8(..5) > 0) {
                let row = if mute { None } else { self.rows.get(&request.key).cloned() };
                told.push(Refusal { index, row });
            }
        }
        if !told.is_empty() {
            return (now, Answer::Transacted(Transacted::Refused(told)));
        }
        if all_hold && own_refused {
            let failed = FailedWrite { index: 0, code: "ConditionalCheckFailed".to_owned(), message: None };
            return (now, Answer::Transacted(Transacted::Cancelled(vec![failed])));
        }
        self.ledger.counts.set_conflicts += 1;
        (now, Answer::Fault(Fault::Throttled))
    }

    fn accepted(
        &mut self,
        requests: &[Request],
        id: &TransactionId,
        number: Option<usize>,
        slot: usize,
        copy: bool,
    ) -> (Nanos, Answer) {
        let now = self.now;
        let process = self.slots[slot].process;
        self.transactions.applied.push((id.clone(), now));
        if let Some(number) = number {
            let held: Vec<Grants> = requests.iter().map(|request| self.grant_on(&request.key)).collect();
            self.ledger.committed(number, &held, copy);
        }
        let mut last = now;
        for request in requests {
            let at = now + self.rng.u64(..8 * MILLI);
            last = last.max(at);
            self.transactions.taken.push((request.key.clone(), at));
            let pending = Pending { request: request.clone(), copy, process };
            self.at(at, Event::Visible(Box::new(pending)));
        }
        (last, Answer::Transacted(Transacted::Applied))
    }

    pub(super) fn becomes_visible(&mut self, pending: Pending) {
        let Pending { request, copy, process } = pending;
        self.write(&request, process, copy);
    }

    /// The grant that holds this row, if it is held.
    pub(super) fn grant_on(&self, key: &LockKey) -> Grants {
        let row = self.rows.get(key);
        Grants {
            key: self.index_of(key),
            grant: row.filter(|row| is_held(Some(row))).and_then(version).map(|of| of.grant),
        }
    }
}

pub(super) fn version(row: &Item) -> Option<Version> {
    match row.get(schema::VERSION) {
        Some(Value::S(text)) => Version::parse(text),
        _ => None,
    }
}

pub(super) fn is_held(row: Option<&Item>) -> bool {
    row.is_some_and(|row| row.get(schema::RELEASED).is_none())
}
