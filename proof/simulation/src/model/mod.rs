//! The exhaustive model: a few callers, a small abstract time, and every order of events. Two callers ask for one key, or
//! one of them asks for two keys together and the other for one of the two, or two wait in line behind a holder.
//!
//! The operations are the protocol's own, and the table evaluates the protocol's own expressions. A request may be
//! applied with or without a response, be applied twice, or arrive at any later time. Callers time out, crash, and
//! restart as a new caller. Leases expire and are taken over.
//!
//! A transaction is decided at one instant, reaches its rows one after the other, and is then answered. Meanwhile other
//! writes of its rows meet a conflict. A refused one may report only a part of its reasons.

mod calls;
mod line;
mod operations;
mod requests;
mod sometimes;
mod state;

use lambda_lock_protocol::mistakes::{self, Mistake};
use lambda_lock_protocol::{Answer, ClockBounds, Fault, Sent, Settings, Transacted, Written};
use sometimes::{Sometimes, count};
pub use state::{Call, State};
use state::{Caller, KEYS, Message, WaitsFor, reads};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The length of a tick of the abstract time: as long as a free lock is left to one who is ahead in line.
const TICK: Duration = Duration::from_millis(2_200);

/// A lease of two ticks.
const LEASE: Duration = Duration::from_millis(4_400);

const EPOCH: u64 = 1_800_000_000_000;

/// The number of callers. Only the line has a third one.
const CALLERS: usize = 3;

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    clock_bounds: ClockBounds::default().with_max_clock_skew(Some(TICK)),
    ..Settings::default()
});

/// What the callers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Both ask for the same lock.
    ForOneLock,
    /// The first asks for two locks together, the second for one of them at a time.
    ForASet,
    /// Two wait in line for a lock that a third one holds at the beginning.
    InLine,
}

impl Asking {
    /// The number of requests that a call may send before its time is over.
    fn requests(self) -> usize {
        match self {
            Asking::ForOneLock | Asking::ForASet => 3,
            // A Claim, a ticket, two looks and a Take, with one response lost.
            Asking::InLine => 6,
        }
    }
}

/// The bounds of the model.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What the callers ask for.
    pub asking: Asking,
    /// The maximum number of events in a sequence.
    pub depth: usize,
    /// The maximum number of ticks.
    pub time: u8,
    /// The maximum number of calls of each caller.
    pub calls: u8,
    /// The maximum number of requests in flight at the same time.
    pub messages: usize,
    /// The maximum number of requests that are applied twice.
    pub duplicates: u8,
    /// The maximum number of requests that meet a transaction of somebody else.
    pub conflicts: u8,
    /// The maximum number of crashes.
    pub crashes: u8,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Time passes.
    Tick,
    /// A caller begins a call.
    Begins(usize, Call),
    /// A caller continues after a pause.
    GoesOn(usize),
    /// A request is applied, and the caller gets the response.
    Answered(usize),
    /// A transaction is refused, and the caller learns what only one of the refusing rows is.
    AnsweredInPart(usize, usize),
    /// A request is not applied, because somebody else's transaction has the row. The caller gets the response.
    Conflicts(usize),
    /// A write of an accepted transaction reaches its row.
    Lands(usize),
    /// A request is applied, and nobody gets the response.
    Unheard(usize),
    /// A request is applied, and a copy of it stays in flight.
    Doubled(usize),
    /// A caller stops waiting for a response.
    TimesOut(usize),
    /// A caller crashes, and restarts as a new caller.
    Crashes(usize),
}

/// The model.
#[derive(Debug)]
pub struct Lock {
    bounds: Bounds,
    /// The mistake that is switched on.
    mistake: Option<Mistake>,
    sometimes: Sometimes,
}

impl Model for Lock {
    type State = State;
    type Action = Happening;

    fn init_states(&self) -> Vec<State> {
        mistakes::set(self.mistake);
        match self.bounds.asking {
            Asking::ForOneLock | Asking::ForASet => vec![State::new()],
            Asking::InLine => self.lines(),
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Happening>) {
        if state.now < self.bounds.time {
            actions.push(Happening::Tick);
        }
        let room = state.messages.len() < self.bounds.messages;
        for (caller, what) in state.callers.iter().enumerate() {
            let more = state.calls[caller] < self.bounds.calls && room;
            match &**what {
                Caller::Idle if more => {
                    actions.extend(self.asks(caller).iter().map(|call| Happening::Begins(caller, *call)));
                }
                Caller::Holding(_) if self.bounds.asking == Asking::InLine && room => {
                    actions.push(Happening::Begins(caller, Call::Release));
                }
                Caller::Holding(_) if more => {
                    actions.extend([Call::Renew, Call::Release].map(|call| Happening::Begins(caller, call)));
                }
                Caller::Calling { waits_for: WaitsFor::Time, .. } if room => actions.push(Happening::GoesOn(caller)),
                Caller::Calling { waits_for: WaitsFor::Answer(_), .. } if room => {
                    actions.push(Happening::TimesOut(caller))
                }
                _ => {}
            }
            if state.crashes < self.bounds.crashes && !matches!(**what, Caller::Idle) {
                actions.push(Happening::Crashes(caller));
            }
        }
        for (index, message) in state.messages.iter().enumerate() {
            self.arrivals(state, index, message, actions);
        }
        let left = state.landing.as_ref().map_or(0, |landing| landing.left.len());
        actions.extend((0..left).map(Happening::Lands));
    }

    fn next_state(&self, last: &State, action: Happening) -> Option<State> {
        mistakes::set(self.mistake);
        self.next_state_of(last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no promise is broken", |_, state: &State| state.broken.is_none()),
            Property::always("at most one guard says mine", |_, state: &State| {
                (0..CALLERS).filter(|caller| state.says_mine(*caller)).count() <= 1
            }),
            Property::always("a guard that says mine has its rows", |_, state: &State| {
                (0..CALLERS).all(|caller| state.relies_on(caller).iter().all(|holding| state.is_held_by(holding)))
            }),
            Property::sometimes("a guard says mine", |_, state: &State| {
                (0..CALLERS).any(|caller| state.says_mine(caller))
            }),
            Property::sometimes("a holder finds its lease run out", |_, state: &State| {
                (0..CALLERS)
                    .any(|caller| matches!(*state.callers[caller], Caller::Holding(_)) && !state.says_mine(caller))
            }),
            Property::sometimes("an old holder has not noticed the new one", |_, state: &State| {
                state.callers.iter().filter(|caller| matches!(***caller, Caller::Holding(_))).count() >= 2
            }),
        ]
    }
}

impl Lock {
    /// The calls that a caller without a lock may begin.
    fn asks(&self, caller: usize) -> &'static [Call] {
        match (self.bounds.asking, caller) {
            (_, 2..) => &[],
            (Asking::ForOneLock | Asking::InLine, _) => &[Call::Acquire(0)],
            (Asking::ForASet, 0) => &[Call::AcquireAll],
            (Asking::ForASet, _) => &[Call::Acquire(0), Call::Acquire(1)],
        }
    }

    fn next_state_of(&self, last: &State, action: Happening) -> Option<State> {
        let mut state = last.clone();
        match action {
            Happening::Tick => state.now += 1,
            Happening::Begins(caller, call) => self.begin(&mut state, caller, call),
            Happening::GoesOn(caller) => {
                let Caller::Calling { call, held, inputs, .. } = state.take(caller) else { return None };
                self.go_on(&mut state, caller, call, held, inputs);
            }
            Happening::Answered(index) => {
                let message = state.messages.swap_remove(index);
                let caller = message.caller;
                if let Some(answer) = self.apply(&mut state, message, true) {
                    self.answer(&mut state, caller, answer);
                }
            }
            Happening::AnsweredInPart(index, row) => {
                let message = state.messages.swap_remove(index);
                let caller = message.caller;
                let answer = self.apply(&mut state, message, true);
                let Some(Answer::Transacted(Transacted::Refused(mut refusals))) = answer else { return None };
                if refusals.len() < KEYS.len() {
                    return None;
                }
                refusals.retain(|refusal| refusal.index == row);
                count(&self.sometimes.told_in_part);
                self.answer(&mut state, caller, Answer::Transacted(Transacted::Refused(refusals)));
            }
            Happening::Conflicts(index) => {
                state.conflicts += 1;
                let message = state.messages.swap_remove(index);
                if state.has_accepted(&message.sent) {
                    // DynamoDB recognises the copy.
                    return None;
                }
                self.answer(&mut state, message.caller, Answer::Fault(Fault::Throttled));
            }
            Happening::Lands(index) => self.land(&mut state, index),
            Happening::Unheard(index) => {
                let message = state.messages.swap_remove(index);
                self.apply(&mut state, message, false);
            }
            Happening::Doubled(index) => {
                state.duplicates += 1;
                let message = state.messages[index].clone();
                let answer = self.apply(&mut state, message, false);
                let applied = matches!(
                    answer,
                    Some(Answer::Written(Written::Applied(_)) | Answer::Transacted(Transacted::Applied))
                );
                Arc::make_mut(&mut state.messages[index]).applied = applied;
            }
            Happening::TimesOut(caller) => {
                // A read that nobody waits for has no effect.
                state.messages.retain(|message| message.caller != caller || !reads(&message.sent));
                self.answer(&mut state, caller, Answer::Fault(Fault::Unknown));
            }
            Happening::Crashes(caller) => {
                state.crashes += 1;
                state.messages.retain(|message| message.caller != caller || !reads(&message.sent));
                state.set(caller, Caller::Idle);
            }
        }
        Some(state)
    }

    /// How a request in flight may arrive.
    fn arrivals(&self, state: &State, index: usize, message: &Message, actions: &mut Vec<Happening>) {
        if state.waits_for(message) {
            actions.push(Happening::Answered(index));
            if let Sent::Transaction(_) = message.sent {
                actions.extend((0..KEYS.len()).map(|row| Happening::AnsweredInPart(index, row)));
            }
            if !reads(&message.sent) && state.conflicts < self.bounds.conflicts {
                actions.push(Happening::Conflicts(index));
            }
        }
        if !reads(&message.sent) {
            actions.push(Happening::Unheard(index));
            if state.duplicates < self.bounds.duplicates {
                actions.push(Happening::Doubled(index));
            }
        }
    }
}

/// The result of checking the model.
#[derive(Debug)]
pub struct Checked {
    /// The number of different states.
    pub states: usize,
    /// Broken promises, each with the events that led to it.
    pub broken: Vec<String>,
    /// Events that should happen sometimes, and how often they did.
    pub sometimes: Vec<(&'static str, u64)>,
}

/// Checks every state. `tick` is called now and then with the number of states so far.
///
/// One thread looks at all of them. Several could reach a state first by a longer way than the shortest, at the end of which
/// nothing more may follow, and so leave out what follows it.
pub fn check(bounds: Bounds, mistake: Option<Mistake>, tick: impl Fn(usize)) -> Checked {
    let model = Lock { bounds, mistake, sometimes: Sometimes::default() };
    let checker = model.checker().target_max_depth(bounds.depth);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
    while !checker.is_done() {
        std::thread::sleep(Duration::from_millis(200));
        tick(checker.unique_state_count());
    }
    let checker = checker.join();
    let mut broken = Vec::new();
    let mut sometimes = checker.model().sometimes.list(bounds.asking);
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        let found = discoveries.get(property.name);
        match property.expectation {
            stateright::Expectation::Sometimes => sometimes.push((property.name, u64::from(found.is_some()))),
            _ => broken.extend(found.map(|path| {
                let mut text = property.name.to_owned();
                for (state, action) in path.clone().into_vec() {
                    let _ = write!(text, "\n  at {} {action:?} {:?}", state.now, state.broken);
                }
                text
            })),
        }
    }
    Checked { states: checker.unique_state_count(), broken, sometimes }
}
