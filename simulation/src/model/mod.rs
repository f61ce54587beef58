//! The exhaustive model: two callers, one key, a small abstract time, and every order of events.
//!
//! The operations are the protocol's own, and the table evaluates the protocol's own expressions. A request may be
//! applied with or without a response, be applied twice, or arrive at any later time. Callers time out, crash, and
//! restart as a new caller. Leases expire and are taken over.

mod calls;
mod operations;
mod requests;
mod sometimes;
mod state;

use lambda_lock::mistakes::{self, Mistake};
use lambda_lock::protocol::{Action, Answer, ClockBounds, Settings};
use sometimes::Sometimes;
use state::{Call, Caller, State, WaitsFor};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::fmt::{Debug, Write as _};
use std::sync::LazyLock;
use std::time::Duration;

/// The length of a tick of the abstract time.
const TICK: Duration = Duration::from_millis(100);

/// A lease of two ticks.
const LEASE: Duration = Duration::from_millis(200);

const EPOCH: u64 = 1_800_000_000_000;

const CALLERS: usize = 2;

/// The number of requests that a call may send before its time is over.
const REQUESTS: usize = 3;

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    clock_bounds: ClockBounds::default().with_max_clock_skew(Some(TICK)),
    ..Settings::default()
});

/// The bounds of the model.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
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
    /// The maximum number of crashes.
    pub crashes: u8,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Time passes.
    Tick,
    /// A caller begins a call.
    Begins(usize, u8),
    /// A caller continues after a pause.
    GoesOn(usize),
    /// A request is applied, and the caller gets the response.
    Answered(usize),
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
        vec![State {
            now: 0,
            row: None,
            row_print: 0,
            callers: [Caller::Idle, Caller::Idle],
            calls: [0; CALLERS],
            sent: [0; CALLERS],
            messages: Vec::new(),
            duplicates: 0,
            crashes: 0,
            token: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Happening>) {
        if state.now < self.bounds.time {
            actions.push(Happening::Tick);
        }
        let room = state.messages.len() < self.bounds.messages;
        for (caller, what) in state.callers.iter().enumerate() {
            let more = state.calls[caller] < self.bounds.calls && room;
            match what {
                Caller::Idle if more => actions.push(Happening::Begins(caller, 0)),
                Caller::Holding(_) if more => {
                    actions.extend([Happening::Begins(caller, 1), Happening::Begins(caller, 2)]);
                }
                Caller::Calling { waits_for: WaitsFor::Time, .. } if room => actions.push(Happening::GoesOn(caller)),
                Caller::Calling { waits_for: WaitsFor::Answer(_), .. } if room => {
                    actions.push(Happening::TimesOut(caller))
                }
                _ => {}
            }
            if state.crashes < self.bounds.crashes && !matches!(what, Caller::Idle) {
                actions.push(Happening::Crashes(caller));
            }
        }
        for (index, message) in state.messages.iter().enumerate() {
            let waited_for = matches!(&state.callers[message.caller],
                Caller::Calling { waits_for: WaitsFor::Answer(number), .. } if *number == message.number);
            if waited_for {
                actions.push(Happening::Answered(index));
            }
            if message.request.action != Action::Peek {
                actions.push(Happening::Unheard(index));
                if state.duplicates < self.bounds.duplicates {
                    actions.push(Happening::Doubled(index));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Happening) -> Option<State> {
        mistakes::set(self.mistake);
        let mut state = last.clone();
        match action {
            Happening::Tick => state.now += 1,
            Happening::Begins(caller, call) => {
                self.begin(&mut state, caller, [Call::Acquire, Call::Renew, Call::Release][usize::from(call)]);
            }
            Happening::GoesOn(caller) => {
                let Caller::Calling { call, held, inputs, .. } =
                    std::mem::replace(&mut state.callers[caller], Caller::Idle)
                else {
                    return None;
                };
                self.go_on(&mut state, caller, call, held, inputs);
            }
            Happening::Answered(index) => {
                let message = state.messages.swap_remove(index);
                let answer = self.apply(&mut state, &message, true);
                self.answer(&mut state, message.caller, answer);
            }
            Happening::Unheard(index) => {
                let message = state.messages.swap_remove(index);
                self.apply(&mut state, &message, false);
            }
            Happening::Doubled(index) => {
                state.duplicates += 1;
                let message = state.messages[index].clone();
                self.apply(&mut state, &message, false);
            }
            Happening::TimesOut(caller) => {
                // A read that nobody waits for has no effect.
                state.messages.retain(|message| message.caller != caller || message.request.action != Action::Peek);
                self.answer(&mut state, caller, Answer::Unknown);
            }
            Happening::Crashes(caller) => {
                state.crashes += 1;
                state.messages.retain(|message| message.caller != caller || message.request.action != Action::Peek);
                state.callers[caller] = Caller::Idle;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no promise is broken", |_, state: &State| state.broken.is_none()),
            Property::always("at most one guard says mine", |_, state: &State| {
                (0..CALLERS).filter(|caller| state.says_mine(*caller)).count() <= 1
            }),
            Property::sometimes("a guard says mine", |_, state: &State| {
                (0..CALLERS).any(|caller| state.says_mine(caller))
            }),
            Property::sometimes("a holder finds its lease run out", |_, state: &State| {
                matches!(state.callers[0], Caller::Holding(_)) && !state.says_mine(0)
            }),
            Property::sometimes("an old holder has not noticed the new one", |_, state: &State| {
                matches!(state.callers, [Caller::Holding(_), Caller::Holding(_)])
            }),
        ]
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
pub fn check(bounds: Bounds, mistake: Option<Mistake>, threads: usize, tick: impl Fn(usize)) -> Checked {
    let model = Lock { bounds, mistake, sometimes: Sometimes::default() };
    let checker = model.checker().threads(threads).target_max_depth(bounds.depth);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
    while !checker.is_done() {
        std::thread::sleep(Duration::from_millis(200));
        tick(checker.unique_state_count());
    }
    let checker = checker.join();
    let mut broken = Vec::new();
    let mut sometimes = checker.model().sometimes.list().to_vec();
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
