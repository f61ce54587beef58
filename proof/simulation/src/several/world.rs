//! Time, processes, and what is under way.

use super::ledger::Ledger;
use super::table::{Pending, Transactions};
use crate::clocks::EPOCH;
use crate::table::Rows;
use fastrand::Rng;
use lambda_lock_protocol::{
    Answer, ClockBounds, Fault, Instants, Item, LockKey, Request, Schema, Sent, Settings, Value, schema,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nanoseconds of true time.
pub(super) type Nanos = u64;

pub(super) const MILLI: Nanos = 1_000_000;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Asks for several keys at once.
    Set,
    /// Asks for one key.
    Single,
    /// Asks for one of several places.
    Place,
    /// At the end: asks for all keys.
    LastSet,
    /// At the end: asks for a place.
    LastPlace,
}

/// What happens at a point in time.
#[derive(Debug)]
pub(super) enum Event {
    Spawn(Role),
    Wake(usize),
    Arrive {
        slot: usize,
        sent: Sent,
        /// The number of the caller's own writes in a transaction, if it has some.
        number: Option<usize>,
        copy: bool,
        mute: bool,
    },
    /// The response reaches its sender.
    Answer {
        slot: usize,
        answer: Answer,
    },
    /// A write of a transaction reaches its row.
    Visible(Box<Pending>),
}

/// What the seed decides before the run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) keys: usize,
    pub(super) places: usize,
    pub(super) lease: Duration,
    pub(super) skew: Duration,
    pub(super) by_wall_clock: bool,
    pub(super) lost: f64,
    pub(super) unheard: f64,
    pub(super) duplicate: f64,
    pub(super) conflict: f64,
    pub(super) mute: f64,
    pub(super) pause: f64,
    pub(super) crash: f64,
    pub(super) slow: f64,
    pub(super) writes_refused: f64,
    pub(super) unprocessed: f64,
    pub(super) forgetful: bool,
    pub(super) ends: Nanos,
}

impl Plan {
    fn of(rng: &mut Rng) -> Self {
        let mut some = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
        let (lost, unheard, duplicate, conflict) = (some(0.15), some(0.15), some(0.2), some(0.15));
        let (mute, pause, crash, slow) = (some(0.2), some(0.15), some(0.05), some(0.1));
        let (writes_refused, unprocessed) = (some(0.2), some(0.2));
        Self {
            keys: rng.usize(2..=4),
            places: rng.usize(2..=4),
            lease: Duration::from_millis(rng.u64(200..=800)),
            skew: Duration::from_millis(rng.u64(20..=200)),
            by_wall_clock: rng.u8(..4) > 0,
            lost,
            unheard,
            duplicate,
            conflict,
            mute,
            pause,
            crash,
            slow,
            writes_refused,
            unprocessed,
            forgetful: rng.u8(..8) == 0,
            ends: rng.u64(1_500..=5_000) * MILLI,
        }
    }
}

/// A process and its clocks.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) monotonic_rate: f64,
    pub(super) wall_rate: f64,
    monotonic: Duration,
    /// How far its wall clock is ahead at the start, in milliseconds.
    ahead: i64,
    started: Nanos,
    /// A request or a response was lost since its call began.
    pub(super) lost: bool,
}

/// A request that was sent, and its response.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) process: usize,
    pub(super) answer: Option<Answer>,
}

#[derive(Clone)]
pub(super) struct World(Arc<Mutex<State>>);

pub(super) struct State {
    pub(super) now: Nanos,
    queue: BinaryHeap<Reverse<(Nanos, usize)>>,
    events: Vec<Option<Event>>,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) settings: Settings,
    pub(super) keys: Vec<LockKey>,
    pub(super) rows: Rows,
    pub(super) transactions: Transactions,
    pub(super) processes: Vec<Process>,
    pub(super) slots: Vec<Slot>,
    pub(super) ledger: Ledger,
    pub(super) calm: bool,
    pub(super) hash: u64,
    pub(super) trace: Vec<String>,
    traces: bool,
}

impl World {
    pub(super) fn new(seed: u64, traces: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::of(&mut rng);
        let bounds = ClockBounds::default().with_max_clock_skew(plan.by_wall_clock.then_some(plan.skew));
        let settings = Settings { schema: Schema::default(), clock_bounds: bounds };
        let name = |index: usize| LockKey::from(format!("k{index}"));
        let place = |index: usize| LockKey::from(format!("p/{index}"));
        let mut state = State {
            now: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            keys: (0..plan.keys).map(name).chain((0..=plan.places).map(place)).collect(),
            rows: Rows::new(Schema::default()),
            transactions: Transactions::default(),
            processes: Vec::new(),
            slots: Vec::new(),
            ledger: Ledger::new(plan.keys + plan.places + 1),
            calm: false,
            hash: seed,
            trace: Vec::new(),
            traces,
            settings,
            rng,
            plan,
        };
        for role in [Role::Set, Role::Set, Role::Single, Role::Single, Role::Place, Role::Place, Role::Place] {
            for _ in 0..state.rng.usize(1..=2) {
                let at = state.rng.u64(..200) * MILLI;
                state.at(at, Event::Spawn(role));
            }
        }
        if state.rng.u8(..4) == 0 {
            // A clock that was wrong once has lifted the token of a row.
            let row = [
                (schema::OWNER, Value::S("earlier".to_owned())),
                (schema::LEASE, Value::S("1000".to_owned())),
                (
                    schema::VERSION,
                    Value::S("ll1-0123456789abcdef0123456789abcdef-0199d6a4c8000123456789abcdef".to_owned()),
                ),
                (schema::ENDS, Value::N("1000".to_owned())),
                (schema::TOKEN, Value::N("4000000000000".to_owned())),
                (schema::RELEASED, Value::S("1".to_owned())),
            ];
            let mut item: Item = row.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
            item.set("key".to_owned(), Value::S("k0".to_owned()));
            let key = state.keys[0].clone();
            state.rows.set(&key, Some(item));
        }
        let plan = format!("{:?}", state.plan);
        state.say(|_| plan);
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn at(&mut self, at: Nanos, event: Event) {
        self.queue.push(Reverse((at.max(self.now), self.events.len())));
        self.events.push(Some(event));
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        let Reverse((at, index)) = self.queue.pop()?;
        self.now = at;
        self.rows.now = Duration::from_nanos(at);
        self.hash = self.hash.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ at;
        self.events[index].take()
    }

    pub(super) fn chance(&mut self, chance: f64) -> bool {
        !self.calm && chance > 0.0 && self.rng.f64() < chance
    }

    /// Whether processes begin nothing new.
    pub(super) fn is_over(&self) -> bool {
        self.now >= self.plan.ends
    }

    pub(super) fn spawn(&mut self) -> usize {
        let rate = |rng: &mut Rng| 1.0 + (rng.f64() - 0.5) * 0.04;
        let skew = i64::try_from(self.plan.skew.as_millis()).unwrap_or_default() / 2 - 10;
        let process = Process {
            monotonic_rate: rate(&mut self.rng),
            // Wall clocks stay within the allowed skew for as long as a run lasts.
            wall_rate: 1.0 + (self.rng.f64() - 0.5) * 0.0004,
            monotonic: Duration::from_secs(self.rng.u64(1..1000)),
            ahead: self.rng.i64(-skew.max(0)..=skew.max(0)),
            started: self.now,
            lost: false,
        };
        self.processes.push(process);
        self.processes.len() - 1
    }

    /// Both clocks of a process.
    pub(super) fn clocks(&self, id: usize) -> Instants {
        let process = &self.processes[id];
        let passed = Duration::from_nanos(self.now - process.started);
        let wall = (EPOCH + Duration::from_nanos(process.started) + passed.mul_f64(process.wall_rate)).as_millis();
        let wall = i64::try_from(wall).unwrap_or_default() + process.ahead;
        Instants {
            monotonic: process.monotonic + passed.mul_f64(process.monotonic_rate),
            wall: Duration::from_millis(u64::try_from(wall).unwrap_or_default()),
        }
    }

    /// Wakes a process, after a pause of the process in some cases.
    pub(super) fn wake(&mut self, id: usize, at: Nanos) {
        let pause = if self.chance(self.plan.pause) { self.rng.u64(0..=2 * nanos(self.plan.lease)) } else { 0 };
        self.at(at + pause, Event::Wake(id));
    }

    pub(super) fn send(&mut self, process: usize, sent: Sent, number: Option<usize>) -> usize {
        let slot = self.slots.len();
        self.slots.push(Slot { process, answer: None });
        self.say(|_| format!("process {process} sends {}", brief(&sent, number)));
        let way = self.way();
        let writes = matches!(sent, Sent::Write(_) | Sent::Transaction(_));
        if self.chance(self.plan.lost) {
            // Nobody gets any response.
            self.processes[process].lost = true;
            return slot;
        }
        if writes && self.chance(self.plan.duplicate) {
            let mut late = self.rng.u64(0..=6 * nanos(self.plan.lease));
            if self.plan.forgetful && self.rng.u8(..3) == 0 {
                late = self.rng.u64(540..=720) * 1000 * MILLI;
            }
            let copy = Event::Arrive { slot, sent: sent.clone(), number, copy: true, mute: false };
            self.at(self.now + way + late, copy);
        }
        let slow = if self.chance(self.plan.slow) { self.rng.u64(0..=3 * nanos(self.plan.lease)) } else { 0 };
        self.processes[process].lost |= slow > 0;
        let mute = self.chance(self.plan.mute);
        self.at(self.now + way + slow, Event::Arrive { slot, sent, number, copy: false, mute });
        slot
    }

    pub(super) fn way(&mut self) -> Nanos {
        self.rng.u64(MILLI / 2..=5 * MILLI)
    }

    pub(super) fn happens(&mut self, event: Event) {
        match event {
            Event::Arrive { slot, sent, number, copy, mute } => self.arrives(slot, sent, number, copy, mute),
            Event::Answer { slot, answer } => {
                let process = self.slots[slot].process;
                self.slots[slot].answer = Some(answer);
                let now = self.now;
                self.wake(process, now);
            }
            Event::Visible(pending) => self.becomes_visible(*pending),
            Event::Spawn(_) | Event::Wake(_) => {}
        }
    }

    /// Sends a response on its way, unless it is lost.
    pub(super) fn answers(&mut self, slot: usize, at: Nanos, answer: Answer, copy: bool) {
        if copy {
            return;
        }
        let now = self.now;
        self.say(|_| format!("  it is answered at {:.3} ms: {}", at.max(now) as f64 / 1e6, brief_answer(&answer)));
        let way = self.way();
        let answer = if self.chance(self.plan.unheard) {
            let process = self.slots[slot].process;
            self.processes[process].lost = true;
            if self.rng.bool() {
                return;
            }
            Answer::Fault(Fault::Unknown)
        } else {
            answer
        };
        self.at(at + way, Event::Answer { slot, answer });
    }

    pub(super) fn index_of(&self, key: &LockKey) -> usize {
        self.keys.iter().position(|own| own == key).unwrap_or(usize::MAX)
    }

    pub(super) fn say(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.traces {
            let line = format!("{:>10.3} ms  {}", self.now as f64 / 1e6, what(self));
            self.trace.push(line);
        }
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn brief(sent: &Sent, number: Option<usize>) -> String {
    let action = |request: &Request| {
        let action = format!("{:?}", request.action);
        format!("{} {}", action.split([' ', '{', '(']).next().unwrap_or_default(), request.key)
    };
    match sent {
        Sent::Write(request) => action(request),
        Sent::Read(key) => format!("a read of {key}"),
        Sent::Transaction(requests) => {
            format!("{:?} together, own writes {number:?}", requests.iter().map(action).collect::<Vec<_>>())
        }
        Sent::ReadAll(keys) => format!("a read of {} keys", keys.len()),
    }
}

fn brief_answer(answer: &Answer) -> String {
    let text = format!("{answer:?}");
    text.chars().take(400).collect()
}
