//! Requests on their way to the table, responses on their way back, and the faults that happen to them.

use super::processes::Process;
use super::queue::Event;
use super::{State, TTL, nanos};
use crate::clocks::{EPOCH, Nanos};
use crate::ledger::{Attributes, CallId, CallKind, Invariant, ProcessId, Reclaims, Written};
use crate::network::{Fate, Outcome, REJECTIONS, Slot, throttling};
use crate::peer::{Op, What};
use crate::plan::RETENTION;
use crate::sdk::{self, Http};
use crate::table::{Answer, Kind, Mark, TOKEN_MEMORY, Typed};
use lambda_lock::simulation::meaning_of_reasons;
use lambda_lock_protocol::Fault;
use lambda_lock_protocol::schema::RELEASED;
use lambda_lock_protocol::{Value, schema};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A request in flight.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) slot: usize,
    pub(crate) request: Typed,
    /// The same request as the real SDK sent it.
    pub(crate) http: Option<Http>,
    pub(crate) fate: Fate,
    pub(crate) copy: bool,
    /// The sender read its clocks for it in this time.
    pub(crate) begun: Nanos,
    pub(crate) read: Nanos,
}

impl State {
    pub(crate) fn send(&mut self, id: ProcessId, request: Typed, http: Option<Http>) -> usize {
        let process = &self.processes[id];
        let (sent, mut begun, mut read) = (process.local, process.woken, process.read);
        let call = process.call.unwrap_or_default();
        if let Some(transaction) = &request.transaction {
            // A repeated transaction must be identical, so it has the times of its first attempt.
            (begun, read) = *self.transactions.entry(transaction.as_str().to_owned()).or_insert((begun, read));
        }
        let write = request.kind != Kind::Peek;
        if request.kind == Kind::Release {
            self.ledger.calls[call].sent_release = true;
        }
        self.slots.push(Slot::new(id, call));
        let slot = self.slots.len() - 1;
        let key = self.keys.iter().position(|key| *key == request.key).unwrap_or_default();
        let shown = self.ledger.calls[call].shown.as_ref();
        self.slots[slot].against_unreadable = self.is_unreadable(key, shown);
        let fate = self.fate(id, sent, write);
        self.say_of(id, || format!("sends {:?} ({fate:?})", request.kind));
        if fate != Fate::Arrives {
            self.has_a_fault(call, request.kind);
        }
        self.comes_when_it_may(call, request.kind);
        let way = self.way();
        let by_sdk = http.is_some();
        let message = Message { slot, request, http, fate, copy: false, begun, read };
        match fate {
            Fate::Throttled => self.refuse_at(sent + way, slot, by_sdk, throttling(slot, write)),
            Fate::Rejected(code) => self.refuse_at(sent + way, slot, by_sdk, REJECTIONS[code]),
            Fate::Stranger => self.answer_at(sent + way, slot, Outcome::Stranger),
            Fate::RequestLost => self.reset_at(sent + way, slot),
            Fate::Arrives | Fate::AnswerLost | Fate::SaysFailure => {
                if write && self.chance(self.plan.faults.duplicate) {
                    let mut late = self.rng.u64(0..=2 * nanos(self.plan.lease));
                    if self.plan.faults.long_freezes && message.request.transaction.is_some() && self.rng.u8(..4) == 0 {
                        late = nanos(TOKEN_MEMORY) * self.rng.u64(90..=130) / 100;
                    }
                    self.at(sent + way + late, Event::Arrive(Box::new(Message { copy: true, ..message.clone() })));
                }
                let slow =
                    if self.chance(self.plan.faults.slow) { self.rng.u64(0..=3 * nanos(self.plan.lease)) } else { 0 };
                if slow > 0 {
                    self.has_a_fault(call, message.request.kind);
                }
                self.at(sent + way + slow, Event::Arrive(Box::new(message)));
            }
        }
        slot
    }

    /// A request of this call has a fault.
    fn has_a_fault(&mut self, call: CallId, kind: Kind) {
        let call = &mut self.ledger.calls[call];
        call.faulted = true;
        call.unclear |= !matches!(kind, Kind::Join | Kind::Leave);
    }

    fn fate(&mut self, id: ProcessId, now: Nanos, write: bool) -> Fate {
        let faults = self.plan.faults.clone();
        if (now < self.processes[id].denied_until && !self.calm) || self.chance(faults.rejected) {
            self.counts().rejected += 1;
            if self.rng.u8(..4) == 0 {
                // This lasts until somebody renews the credentials.
                self.processes[id].denied_until = now + self.rng.u64(0..=nanos(self.plan.lease));
            }
            return Fate::Rejected(self.rng.usize(..REJECTIONS.len()));
        }
        if self.chance(faults.strangers) {
            self.counts().strangers += 1;
            return Fate::Stranger;
        }
        if (now < self.throttled_until && !self.calm) || self.chance(faults.throttled) {
            self.counts().throttled += 1;
            return Fate::Throttled;
        }
        if self.chance(faults.request_lost) {
            self.counts().lost_requests += 1;
            return Fate::RequestLost;
        }
        if self.chance(faults.answer_lost) {
            self.counts().lost_answers += 1;
            return Fate::AnswerLost;
        }
        if write && self.chance(faults.failure_after_apply) {
            self.counts().failures_after_apply += 1;
            return Fate::SaysFailure;
        }
        Fate::Arrives
    }

    /// Which items of a transaction others have, with the lock's item last. `None`: nobody has any.
    fn taken_items(&mut self, request: &Typed) -> Option<Vec<Option<&'static str>>> {
        request.transaction.as_ref()?;
        if !self.chance(self.plan.faults.conflicts) {
            return None;
        }
        let codes = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
        let mut taken: Vec<_> =
            (0..=request.writes.len()).map(|_| self.rng.bool().then(|| codes[self.rng.usize(..3)])).collect();
        if taken.iter().all(Option::is_none) {
            taken[0] = Some(codes[0]);
        }
        self.counts().conflicts += 1;
        let own = taken.last().copied().flatten().is_some();
        self.counts().conflicts_mixed += u64::from(own && self.rows.refuses_writes);
        Some(taken)
    }

    /// Whether a refusal must not contain the row. Sometimes this lasts for a while.
    fn is_mute(&mut self) -> bool {
        let mute = (self.now < self.mute_until && !self.calm) || self.chance(self.plan.faults.mute);
        if mute {
            self.counts().mute += 1;
            if self.rng.u8(..8) == 0 {
                self.mute_until = self.now + self.rng.u64(0..=5 * nanos(self.plan.lease));
            }
        }
        mute
    }

    /// The time that a message travels.
    pub(crate) fn way(&mut self) -> Nanos {
        let longest = nanos(self.plan.latency);
        self.rng.u64(longest / 4..=longest)
    }

    fn reset_at(&mut self, at: Nanos, slot: usize) {
        // Half of the time nobody gets any response.
        if self.rng.bool() {
            self.answer_at(at, slot, Outcome::Reset);
        }
    }

    /// Nobody has looked at the row.
    fn refuse_at(&mut self, at: Nanos, slot: usize, by_sdk: bool, code: &str) {
        let refused =
            if by_sdk { sdk::refused(code) } else { Outcome::Answer(Answer::Fault(Fault::of_error(Some(code), None))) };
        self.answer_at(at, slot, refused);
    }

    fn answer_at(&mut self, at: Nanos, slot: usize, outcome: Outcome) {
        self.slots[slot].outcome = Some(outcome);
        self.at(at, Event::Answer(slot));
    }

    pub(super) fn arrives(&mut self, message: Message) {
        let Message { slot, ref request, fate, copy, .. } = message;
        self.counts().requests += 1;
        let write = request.kind != Kind::Peek;
        let key = self.keys.iter().position(|key| *key == request.key).unwrap_or_default();
        let before = if write { self.mark(key) } else { None };
        let data = if write { self.data(key) } else { None };
        let attributes = if write { self.attributes(key) } else { Vec::new() };
        self.rows.now = Duration::from_nanos(self.now);
        self.rows.refuses_writes = !request.writes.is_empty() && self.chance(self.plan.faults.writes_refused);
        let recognised = self.rows.knows(request);
        let forgotten = self.rows.forgotten(request) > 0;
        self.counts().commits_forgotten += u64::from(forgotten);
        // This includes a row with a newer version than this transaction: a copy of it, or a renewal, is of the same
        // grant.
        let call = self.slots[slot].call;
        let held = match self.ledger.calls[call].kind {
            CallKind::Hold(grant, token) => request.transaction.is_some() && self.is_held_by(key, grant, token),
            _ => false,
        };
        let owned = recognised || held || self.rows.holds(request);
        if request.transaction.is_some() && !copy {
            self.slots[slot].owned = Some(owned);
        }
        let taken = if recognised { None } else { self.taken_items(request) };
        if taken.is_some() {
            self.has_a_fault(self.slots[slot].call, request.kind);
        }
        let reasons = taken.as_ref().map(|taken| {
            let looked = self.rng.bool();
            self.rows.reasons(request, taken, looked)
        });
        let answer = match &reasons {
            Some(reasons) => Answer::of_transaction(meaning_of_reasons(reasons, request.writes.len(), 1)),
            None => self.rows.carry_out(request),
        };
        if let Some(complaint) = self.rows.malformed.take() {
            let what = format!("{:?}: {complaint}", request.kind);
            self.ledger.violate(Invariant::WellFormed, what);
        }
        let by_sdk = match &reasons {
            Some(_) if fate == Fate::SaysFailure => message.http.as_ref().map(|_| sdk::failed()),
            Some(reasons) => message.http.as_ref().map(|_| sdk::cancelled(reasons)),
            None => self.compare(&message, &answer),
        };
        let mute = matches!(answer, Answer::Refused(Some(_))) && self.is_mute();
        let (answer, by_sdk) = if mute {
            self.has_a_fault(self.slots[slot].call, request.kind);
            (Answer::Refused(None), by_sdk.map(sdk::without_rows))
        } else {
            (answer, by_sdk)
        };
        self.mix(self.now ^ (slot as u64) << 32 ^ code(&answer));
        self.say(|state| {
            let of = if copy { "late copy of " } else { "" };
            let process = state.slots[slot].process;
            format!("{of}{:?} of {process} arrives: {}", request.kind, brief(&answer))
        });
        if !copy && request.transaction.is_some() {
            // Or it was refused because of nonsense that is repaired before a copy of it arrives.
            let by_nonsense = matches!(answer, Answer::Refused(_)) && self.is_unreadable(key, before.as_ref());
            self.slots[slot].cancelled =
                by_nonsense || matches!(answer, Answer::Cancelled(_) | Answer::Fault(Fault::Throttled));
        }
        self.count(&message, key, &answer, recognised);
        if matches!(answer, Answer::Applied(_)) && !recognised {
            let known = self.ledger.grants.len();
            self.enter(&message, key, before.as_ref());
            self.extras(&message, key, data, known);
            self.has_the_attributes_of_its_grant(&message, key, &attributes);
        }
        if !copy {
            self.answers(slot, request.kind, fate, answer, by_sdk);
        }
    }

    fn count(&mut self, Message { slot, request, .. }: &Message, key: usize, answer: &Answer, recognised: bool) {
        let call = self.slots[*slot].call;
        if let (Kind::Renew, Answer::Refused(Some(_)), CallKind::Hold(grant, token)) =
            (request.kind, answer, &self.ledger.calls[call].kind)
            && self.is_held_by(key, *grant, *token)
        {
            self.counts().adopted += 1;
        }
        match answer {
            Answer::Cancelled(_) => self.counts().commits_cancelled += 1,
            Answer::Refused(_) if !request.writes.is_empty() => self.counts().commits_refused += 1,
            _ if recognised => self.counts().commits_sent_again += 1,
            _ => {}
        }
    }

    /// Enters what was applied into the ledger.
    fn enter(&mut self, message: &Message, key: usize, before: Option<&Mark>) {
        let Message { slot, begun, read, copy, .. } = *message;
        let Slot { call, refused, means, dropped, cancelled, .. } = self.slots[slot];
        // This includes a refusal that is still on its way to the sender.
        let refused = refused || means.is_some_and(|(_, refused)| refused);
        let written = Written { key, call, slot, begun, read, now: self.now, copy, late: copy || dropped, refused };
        for number in message.request.writes.iter().filter_map(|write| write.number) {
            self.ledger.committed(&self.plan, number, written, cancelled);
        }
        self.ledger.calls[call].applied = true;
        if message.request.kind == Kind::Take && self.slots[slot].against_unreadable {
            let what = "a row that is not a lock record was taken over".to_owned();
            self.ledger.violate(Invariant::UnreadableIsLeft, what);
        }
        let after = self.mark(key).expect("no request of ours deletes a row");
        self.is_in_order(message.request.kind, written, before, &after);
        if matches!(message.request.kind, Kind::Join | Kind::Leave) {
            self.ledger.in_line(before, &after);
        } else {
            self.ledger.applied(&self.plan, written, before, &after);
        }
    }

    fn data(&self, key: usize) -> Option<Vec<u8>> {
        match self.rows.get(&self.keys[key])?.get(schema::DATA)? {
            Value::B(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// The additional attributes in the row, listed or not.
    fn attributes(&self, key: usize) -> Attributes {
        let Some(row) = self.rows.get(&self.keys[key]) else { return Vec::new() };
        let text = |name: &'static str| match row.get(name) {
            Some(Value::S(text)) => Some((name, text.clone())),
            _ => None,
        };
        ["job", "step"].into_iter().filter_map(text).collect()
    }

    /// Checks what a write did to the additional attributes.
    fn has_the_attributes_of_its_grant(&mut self, message: &Message, key: usize, before: &Attributes) {
        if self.rows.get(&self.keys[key]).is_none() {
            return;
        }
        let call = &self.ledger.calls[self.slots[message.slot].call];
        let grants = matches!(message.request.kind, Kind::Claim | Kind::Take);
        // To reclaim a saved lock keeps what its grant has given.
        let reclaims = matches!(call.kind, CallKind::Acquire { reclaims: Reclaims::Grant(_), .. });
        let expected = if grants && !reclaims { call.attributes.clone() } else { before.clone() };
        let found = self.attributes(key);
        self.counts().attributes += u64::from(found != *before);
        if found != expected {
            let what = format!("{:?} left {found:?} in the row instead of {expected:?}", message.request.kind);
            self.ledger.violate(Invariant::AttributesOfTheGrant, what);
        }
    }

    /// Checks what a write did to the payload and to the TTL attribute. `known`: the number of grants before it.
    fn extras(&mut self, message: &Message, key: usize, before: Option<Vec<u8>>, known: usize) {
        let call = &self.ledger.calls[self.slots[message.slot].call];
        let kind = message.request.kind;
        let asked = matches!(
            (&call.kind, kind),
            (CallKind::Acquire { .. }, Kind::Claim | Kind::Take)
                | (CallKind::Release { .. }, Kind::Release)
                | (CallKind::Hold(..), Kind::Renew)
        ) && message.request.transaction.is_some() == call.commits;
        let Some(row) = self.rows.get(&self.keys[key]) else { return };
        let ends_at_ms = match row.get(schema::ENDS) {
            Some(Value::N(ends_at_ms)) => ends_at_ms.parse::<u128>().ok(),
            _ => None,
        };
        let (frozen, breaks) = (row.get(schema::FREEZE_REASON).is_some(), matches!(call.kind, CallKind::Break(_)));
        let expires = match row.get(TTL) {
            Some(Value::N(expires)) => expires.parse::<u128>().ok(),
            _ => None,
        };
        let expected = if kind == Kind::Settle { None } else { call.wants.clone().filter(|_| asked).or(before) };
        let found = self.data(key);
        if self.ledger.grants.len() > known {
            self.ledger.grants[known].data.clone_from(&found);
        }
        if found != expected {
            let what = format!("{kind:?} left {found:?} in the row instead of {expected:?}");
            self.ledger.violate(Invariant::DataIsKept, what);
        }
        // A ticket and a break change no TTL.
        if matches!(kind, Kind::Join | Kind::Leave) || breaks {
            return;
        }
        if frozen && self.plan.ttl && expires.is_some() {
            let what = format!("{kind:?} lets the row of a frozen lock expire at {expires:?} s");
            self.ledger.violate(Invariant::RowOutlivesItsLease, what);
        }
        // A thaw changes no TTL either.
        if frozen || kind == Kind::Freeze {
            return;
        }
        let kept = ends_at_ms.map(|ends_at_ms| ends_at_ms + RETENTION.as_millis());
        if self.plan.ttl && key < self.plan.keys && expires.map(|expires| expires * 1000) < kept {
            let what =
                format!("{kind:?} lets the row expire at {expires:?} s, and its lease ends at {ends_at_ms:?} ms");
            self.ledger.violate(Invariant::RowOutlivesItsLease, what);
        }
    }

    fn answers(&mut self, slot: usize, sent: Kind, fate: Fate, answer: Answer, by_sdk: Option<Outcome>) {
        let way = self.way();
        let told = !matches!(fate, Fate::AnswerLost | Fate::SaysFailure);
        if let (Answer::Refused(_), Some(call)) = (&answer, self.ledger.calls.get_mut(self.slots[slot].call)) {
            call.refusals += 1;
        }
        let means = (
            matches!(answer, Answer::Applied(_)),
            matches!(answer, Answer::Refused(_) | Answer::Fault(Fault::Rejected(_))),
        );
        self.slots[slot].means = told.then_some(means);
        let kind = self.ledger.calls.get(self.slots[slot].call).map(|call| &call.kind);
        let row = match &answer {
            // Nothing follows from it any more.
            _ if sent == Kind::Leave => None,
            Answer::Refused(row) | Answer::Found(row) => Some(row.as_ref()),
            Answer::Applied(row) if sent == Kind::Join => Some(Some(row)),
            _ => None,
        };
        if let (true, Some(CallKind::Acquire { .. }), Some(row)) = (told, kind, row) {
            self.slots[slot].shows = Some(row.map(Mark::of));
        }
        match fate {
            Fate::AnswerLost => self.reset_at(self.now + way, slot),
            _ if by_sdk.is_some() => self.answer_at(self.now + way, slot, by_sdk.unwrap_or(Outcome::Reset)),
            Fate::SaysFailure => self.answer_at(self.now + way, slot, Outcome::Answer(Answer::Fault(Fault::Unknown))),
            _ => self.answer_at(self.now + way, slot, Outcome::Answer(answer)),
        }
    }

    /// Shows the engine what others did to a row.
    pub(super) fn mirror(&self, key: usize) {
        let key = &self.keys[key];
        if let Some(engine) = &self.engine {
            engine.set(key, self.rows.get(key));
        }
    }

    /// Peers have a network without faults. What they do on a bad network is not checked.
    pub(crate) fn send_peers(&mut self, id: ProcessId, op: Op) -> usize {
        let Process { local, woken, call, .. } = self.processes[id];
        self.slots.push(Slot::new(id, call.unwrap_or_default()));
        let slot = self.slots.len() - 1;
        self.slots[slot].begun = woken;
        self.say_of(id, || format!("sends {:?}", op.what));
        let way = self.way();
        self.at(local + way, Event::ArrivePeers(slot, Box::new(op)));
        slot
    }

    pub(super) fn peers_arrives(&mut self, slot: usize, op: Op) {
        let Op { key, what } = op.clone();
        let answer = op.apply(&mut self.rows, &self.keys[key].clone());
        self.mix(self.now ^ (slot as u64) << 32 ^ code(&answer));
        if matches!(answer, Answer::Applied(_)) {
            self.mirror(key);
            let Slot { call, begun, .. } = self.slots[slot];
            let now = self.now;
            self.line_is_over(key);
            match what {
                What::Put { .. } => {
                    let (read, copy, late, refused) = (begun, false, false, false);
                    let written = Written { key, call, slot, begun, read, now, copy, late, refused };
                    self.ledger.granted_to_peer(written);
                }
                What::Update { set, .. } if set.iter().any(|(name, _)| *name == RELEASED) => {
                    self.ledger.released_by_peer(key)
                }
                What::Delete { .. } => self.ledger.row_is_gone(key),
                _ => {}
            }
        }
        let way = self.way();
        self.answer_at(self.now + way, slot, answer.into());
    }

    /// The server's clock as a `Date` header shows it to a process: in whole seconds, and sometimes wrong. A client
    /// never sees two wrong dates that agree.
    pub(crate) fn server_time(&mut self, id: ProcessId) -> SystemTime {
        let right = UNIX_EPOCH + EPOCH + Duration::from_secs(self.now / 1_000_000_000);
        if !self.chance(self.plan.faults.wrong_date) {
            return right;
        }
        self.counts().wrong_dates += 1;
        let client = self.processes[id].shares;
        let wrong = &mut self.processes[client].wrong_dates;
        *wrong += 1;
        let by = Duration::from_secs(u64::from(*wrong) * 60);
        if wrong.is_multiple_of(2) { right + by } else { right - by }
    }
}

fn code(answer: &Answer) -> u64 {
    match answer {
        Answer::Applied(_) => 1,
        Answer::Refused(Some(_)) => 2,
        Answer::Refused(None) => 3,
        Answer::Found(Some(_)) => 4,
        Answer::Found(None) => 5,
        Answer::Fault(Fault::Throttled) => 6,
        Answer::Fault(Fault::Rejected(_)) => 7,
        Answer::Fault(Fault::Unknown) => 8,
        Answer::Cancelled(_) => 9,
    }
}

fn brief(answer: &Answer) -> String {
    let row = |row: &Option<_>| row.as_ref().map(Mark::of);
    match answer {
        Answer::Refused(found) => format!("refused by {:?}", row(found)),
        Answer::Found(found) => format!("found {:?}", row(found)),
        Answer::Applied(returned) => format!("applied, returns {:?}", Mark::of(returned)),
        other => format!("{other:?}"),
    }
}
