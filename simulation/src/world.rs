//! Everything that a simulation consists of: true time, what is going to happen, processes, network, table
//! and books. One seed decides all of it.

use crate::clocks::{Clocks, EPOCH, Nanos};
use crate::counts::Counts;
use crate::expression;
use crate::ledger::{Call, CallId, CallKind, Ended, Invariant, Ledger, ProcessId, Written};
use crate::network::{Fate, Outcome, Slot};
use crate::peer::{Op, What};
use crate::plan::{Chance, Plan};
use crate::sdk::{self, Engine, Http};
use crate::table::{Kind, Mark, Rows, Typed};
use crate::worker::Role;
use fastrand::Rng;
use lambda_lock::protocol::schema::RELEASED;
use lambda_lock::protocol::{Answer, Expression, Grant, LockKey, Moment, Schema};
use lambda_lock::{LockToken, Observation};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What processes and their clocks and networks share.
#[derive(Clone)]
pub(crate) struct World(Arc<Mutex<State>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // One thread has it to itself: to wait would be to wait for ever.
        match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("whoever asks for the world has it already"),
        }
    }
}

pub(crate) enum Event {
    /// A process may go on; with the number of the timer that says so.
    Wake(ProcessId, Option<usize>),
    Arrive(Box<Message>),
    ArrivePeers(usize, Box<Op>),
    Answer(usize),
    Claim {
        granted: usize,
        fresh: bool,
    },
    Effect(usize),
    /// A lock was written down, for whoever goes on with it.
    Hand(LockToken),
    /// A watcher's observation is there for the next one.
    Observed(Observation),
    /// A transaction of a caller's own, with a Fence.
    Fenced(Box<Fenced>),
    DeleteRow,
    Jump,
    Throttle,
    Spawn(Role),
}

/// A caller's own write, under the condition that a grant is current.
pub(crate) struct Fenced {
    pub(crate) key: usize,
    pub(crate) granted: usize,
    pub(crate) condition: Expression,
}

/// A request on its way.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) slot: usize,
    pub(crate) request: Typed,
    /// The same as the real SDK wrote it.
    pub(crate) http: Option<Http>,
    pub(crate) fate: Fate,
    pub(crate) copy: bool,
    /// Its sender's clocks were read for it in this time.
    pub(crate) begun: Nanos,
    pub(crate) read: Nanos,
}

struct Scheduled {
    at: Nanos,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) role: Role,
    clocks: Clocks,
    /// It does nothing before this point in time; while it runs, this is its present.
    pub(crate) local: Nanos,
    /// When its clocks were read last.
    read: Nanos,
    /// When it was woken last: what it sends was made up no earlier, and pauses may lie in between.
    woken: Nanos,
    pub(crate) alive: bool,
    pub(crate) call: Option<CallId>,
    /// Which grant it believes to hold, and on which key.
    pub(crate) holds: Option<usize>,
    pub(crate) nudged: bool,
    /// What the request is that the SDK is about to send.
    pub(crate) noted: Option<Typed>,
}

pub(crate) struct State {
    pub(crate) now: Nanos,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) schema: Schema,
    pub(crate) processes: Vec<Process>,
    pub(crate) alive: usize,
    timers: Vec<bool>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) rows: Rows,
    pub(crate) engine: Option<Engine>,
    pub(crate) keys: Vec<LockKey>,
    pub(crate) ledger: Ledger,
    /// Locks on their way to other processes.
    pub(crate) handed: Vec<LockToken>,
    /// The watchers' last observation, and when it was made.
    pub(crate) observed: Option<(Observation, Nanos)>,
    throttled_until: Nanos,
    /// No more faults.
    pub(crate) calm: bool,
    pub(crate) fenced: bool,
    pub(crate) hash: u64,
    pub(crate) trace: Option<Vec<String>>,
}

impl State {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::of(&mut rng);
        let schema = Schema { dialect: plan.dialect, ..Schema::default() };
        let mut state = Self {
            now: 0,
            queue: BinaryHeap::with_capacity(256),
            scheduled: 0,
            rng,
            schema: schema.clone(),
            processes: Vec::new(),
            alive: 0,
            timers: Vec::with_capacity(1024),
            slots: Vec::with_capacity(512),
            rows: Rows::new(schema),
            engine: None,
            keys: keys(&plan),
            ledger: Ledger::new(plan.keys + plan.jobs),
            handed: Vec::new(),
            observed: None,
            throttled_until: 0,
            calm: false,
            fenced: true,
            hash: seed,
            trace: trace.then(Vec::new),
            plan,
        };
        state.say(|state| format!("{:#?}", state.plan));
        state.begin();
        state
    }

    fn begin(&mut self) {
        for _ in 0..self.plan.workers {
            self.spawn_within(Role::Worker, 200);
        }
        for _ in 0..self.plan.watchers {
            self.spawn_within(Role::Watcher, 200);
        }
        if let Some(peer) = self.plan.peer {
            self.spawn_within(Role::Peer(peer), 200);
        }
        for _ in 0..self.plan.jobs.min(2) {
            self.spawn_within(Role::Doer, 200);
        }
        if self.plan.cleaner {
            self.spawn_within(Role::Cleaner, 200);
        }
        for (often, event) in [
            (self.plan.faults.row_deleted, Event::DeleteRow),
            (self.plan.clocks.jumps, Event::Jump),
            (self.plan.faults.bursts, Event::Throttle),
        ] {
            self.again(often, event);
        }
    }

    /// Schedules what happens so often in a minute.
    fn again(&mut self, often: f64, event: Event) {
        if often > 0.0 {
            let mean = 60.0 / often;
            let pause = Duration::from_secs_f64(mean * 2.0 * self.rng.f64());
            let at = self.now + nanos(pause);
            if at < self.longest() {
                self.at(at, event);
            }
        }
    }

    pub(crate) fn spawn_within(&mut self, role: Role, millis: u64) {
        let at = self.now + self.rng.u64(0..=millis) * 1_000_000;
        self.at(at, Event::Spawn(role));
    }

    pub(crate) fn at(&mut self, at: Nanos, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at, number: self.scheduled, event }));
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse(Scheduled { at, event, .. }) = self.queue.pop()?;
        self.now = at.max(self.now);
        Some(event)
    }

    pub(crate) fn say(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>10.3} ms  {}", self.now as f64 / 1e6, what(self));
            self.trace.get_or_insert_default().push(line);
        }
    }

    /// Says what a process does, at its own present.
    pub(crate) fn say_of(&mut self, process: ProcessId, what: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let local = self.processes[process].local;
            let line =
                format!("{:>10.3} ms  {:?} {process}: {}", local as f64 / 1e6, self.processes[process].role, what());
            self.trace.get_or_insert_default().push(line);
        }
    }

    pub(crate) fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    pub(crate) fn chance(&mut self, chance: Chance) -> bool {
        chance > 0.0 && !self.calm && self.rng.f64() < chance
    }

    pub(crate) fn counts(&mut self) -> &mut Counts {
        &mut self.ledger.counts
    }

    // Processes.

    pub(crate) fn spawn(&mut self, role: Role) -> ProcessId {
        let clocks = Clocks::new(&self.plan.clocks, self.plan.skew, self.now, &mut self.rng);
        self.processes.push(Process {
            role,
            clocks,
            local: self.now,
            read: self.now,
            woken: self.now,
            alive: true,
            call: None,
            holds: None,
            nudged: false,
            noted: None,
        });
        self.alive += 1;
        self.processes.len() - 1
    }

    /// Whether a process goes on now, is paused first, or crashes.
    pub(crate) fn turn(&mut self, id: ProcessId, timer: Option<usize>) -> Turn {
        let process = &self.processes[id];
        if !process.alive || timer.is_some_and(|timer| !self.timers[timer]) {
            return Turn::Nothing;
        }
        if process.local > self.now {
            self.at(process.local, Event::Wake(id, timer));
            return Turn::Nothing;
        }
        self.processes[id].local = self.now;
        self.processes[id].woken = self.now;
        if self.chance(self.plan.faults.pause) {
            self.pause(id);
            self.at(self.processes[id].local, Event::Wake(id, timer));
            return Turn::Nothing;
        }
        if self.processes[id].role.may_crash() && self.chance(self.plan.faults.crash) {
            return Turn::Crash;
        }
        self.mix(id as u64 ^ self.now);
        Turn::Go
    }

    /// The process stands still from its present on.
    fn pause(&mut self, id: ProcessId) {
        let lease = nanos(self.plan.lease);
        let longest = [lease / 8, lease, 3 * lease][self.rng.usize(..3)];
        let lasting = self.rng.u64(1..=longest);
        // Peers look at one clock only, so that one has to keep its rate.
        let looks_at_both = !matches!(self.processes[id].role, Role::Peer(_));
        let freezes = self.plan.clocks.freezes && looks_at_both && self.rng.bool();
        let process = &mut self.processes[id];
        process.local += lasting;
        if freezes {
            process.clocks.freeze(lasting);
        }
        let (call, holds) = (process.call, process.holds.is_some());
        if let Some(call) = call {
            self.ledger.calls[call].disturbed = true;
        }
        let counts = self.counts();
        counts.pauses += 1;
        counts.freezes += u64::from(freezes);
        counts.long_pauses += u64::from(holds && lasting > lease);
        self.say_of(id, || format!("was paused for {:?}, frozen: {freezes}", Duration::from_nanos(lasting)));
    }

    pub(crate) fn read_clocks(&mut self, id: ProcessId) -> Moment {
        let pauses = self.chance(self.plan.faults.pause_at_clock);
        let before = pauses && self.rng.bool();
        if before {
            self.pause(id);
        }
        let process = &mut self.processes[id];
        process.read = process.local;
        let moment = process.clocks.read(process.local);
        if pauses && !before {
            self.pause(id);
        }
        moment
    }

    // Timers: they follow the process's monotonic clock.

    pub(crate) fn timer(&mut self, id: ProcessId, duration: Duration) -> (usize, u64, Nanos) {
        let process = &self.processes[id];
        let until = process.clocks.monotonic(process.local) + nanos(duration);
        self.timers.push(true);
        let timer = self.timers.len() - 1;
        let at = process.clocks.when(until);
        self.at(at, Event::Wake(id, Some(timer)));
        (timer, until, at)
    }

    /// `Ok` when it has run out, else for when it is scheduled now.
    pub(crate) fn poll_timer(
        &mut self,
        id: ProcessId,
        timer: usize,
        until: u64,
        scheduled: Nanos,
    ) -> Result<(), Nanos> {
        let process = &self.processes[id];
        if process.clocks.monotonic(process.local) >= until {
            return Ok(());
        }
        // The clock stood still meanwhile.
        let at = process.clocks.when(until);
        if at > scheduled {
            self.at(at, Event::Wake(id, Some(timer)));
        }
        Err(at.max(scheduled))
    }

    pub(crate) fn drop_timer(&mut self, timer: usize) {
        self.timers[timer] = false;
    }

    // Calls.

    pub(crate) fn call_begins(&mut self, id: ProcessId, key: usize, kind: CallKind) -> CallId {
        let started = self.processes[id].local;
        self.say_of(id, || format!("calls {kind:?} on {key}"));
        self.ledger.calls.push(Call { kind, ended: Ended::Running, started, disturbed: false, sent_release: false });
        let call = self.ledger.calls.len() - 1;
        self.processes[id].call = Some(call);
        call
    }

    /// How long a call may take that waits for nobody: three timeouts for faults, then at most one
    /// request more, by a clock that may be slow.
    pub(crate) fn call_limit(&self) -> Duration {
        let timeout = self.plan.timeout;
        (timeout * 4).max(timeout * 3 + Duration::from_millis(250)).mul_f64(1.03) + Duration::from_millis(2)
    }

    pub(crate) fn call_ends(&mut self, id: ProcessId, ended: Ended, limit: Option<Duration>) {
        let Some(call) = self.processes[id].call.take() else { return };
        let local = self.processes[id].local;
        self.counts().calls += 1;
        self.mix(local ^ ended as u64);
        let record = &mut self.ledger.calls[call];
        record.ended = ended;
        let took = local - record.started;
        if let Some(limit) = limit.filter(|limit| !record.disturbed && took > nanos(*limit)) {
            let what = format!("{:?} took {:?} of {limit:?}", record.kind, Duration::from_nanos(took));
            self.ledger.violate(Invariant::ReturnsInTime, what);
        }
    }

    /// The row's mark as it is now.
    pub(crate) fn mark(&self, key: usize) -> Option<Mark> {
        self.rows.get(&self.keys[key]).map(Mark::of)
    }

    // The network.

    pub(crate) fn send(&mut self, id: ProcessId, request: Typed, http: Option<Http>) -> usize {
        let process = &self.processes[id];
        let (sent, begun, read) = (process.local, process.woken, process.read);
        let call = process.call.unwrap_or_default();
        let write = request.kind != Kind::Peek;
        if request.kind == Kind::Release {
            self.ledger.calls[call].sent_release = true;
        }
        self.slots.push(Slot::new(id, call));
        let slot = self.slots.len() - 1;
        let fate = self.fate(sent, write);
        self.say_of(id, || format!("sends {:?} ({fate:?})", request.kind));
        let way = self.way();
        let by_sdk = http.is_some();
        let message = Message { slot, request, http, fate, copy: false, begun, read };
        match fate {
            Fate::Throttled if by_sdk => self.answer_at(sent + way, slot, sdk::throttled()),
            Fate::Throttled => self.answer_at(sent + way, slot, Outcome::Answer(Answer::Unavailable)),
            Fate::RequestLost => self.reset_at(sent + way, slot),
            Fate::Arrives | Fate::AnswerLost | Fate::SaysFailure => {
                if write && self.chance(self.plan.faults.duplicate) {
                    let late = self.rng.u64(0..=2 * nanos(self.plan.lease));
                    self.at(sent + way + late, Event::Arrive(Box::new(Message { copy: true, ..message.clone() })));
                }
                let slow =
                    if self.chance(self.plan.faults.slow) { self.rng.u64(0..=3 * nanos(self.plan.lease)) } else { 0 };
                self.at(sent + way + slow, Event::Arrive(Box::new(message)));
            }
        }
        slot
    }

    fn fate(&mut self, now: Nanos, write: bool) -> Fate {
        let faults = self.plan.faults.clone();
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

    /// How long a message travels.
    pub(crate) fn way(&mut self) -> Nanos {
        let longest = nanos(self.plan.latency);
        self.rng.u64(longest / 4..=longest)
    }

    fn reset_at(&mut self, at: Nanos, slot: usize) {
        // Half of the time nobody says anything at all.
        if self.rng.bool() {
            self.answer_at(at, slot, Outcome::Reset);
        }
    }

    fn answer_at(&mut self, at: Nanos, slot: usize, outcome: Outcome) {
        self.slots[slot].outcome = Some(outcome);
        self.at(at, Event::Answer(slot));
    }

    fn arrives(&mut self, message: Message) {
        let Message { slot, ref request, fate, copy, begun, read, .. } = message;
        self.counts().requests += 1;
        let Slot { call, refused, means, dropped, .. } = self.slots[slot];
        // Also while the refusal is on its way to the sender.
        let refused = refused || means.is_some_and(|(_, refused)| refused);
        let write = request.kind != Kind::Peek;
        let key = self.keys.iter().position(|key| *key == request.key).unwrap_or_default();
        let before = if write { self.mark(key) } else { None };
        self.rows.refuses_writes = !request.writes.is_empty() && self.chance(self.plan.faults.writes_refused);
        let recognised = self.rows.knows(request);
        let answer = self.rows.carry_out(request);
        let by_sdk = self.compare(&message, &answer);
        self.mix(self.now ^ (slot as u64) << 32 ^ code(&answer));
        self.say(|state| {
            let of = if copy { "late copy of " } else { "" };
            let process = state.slots[slot].process;
            format!("{of}{:?} of {process} arrives: {}", request.kind, brief(&answer))
        });
        if let (Kind::Renew, Answer::Refused(Some(_)), CallKind::Hold(grant, token)) =
            (request.kind, &answer, &self.ledger.calls[call].kind)
            && self.is_held_by(key, *grant, *token)
        {
            self.counts().adopted += 1;
        }
        match &answer {
            Answer::Cancelled(_) => self.counts().commits_cancelled += 1,
            Answer::Refused(_) if !request.writes.is_empty() => self.counts().commits_refused += 1,
            _ if recognised => self.counts().commits_sent_again += 1,
            _ => {}
        }
        if matches!(answer, Answer::Applied(_)) && !recognised {
            let now = self.now;
            let written = Written { key, call, slot, begun, read, now, copy, late: copy || dropped, refused };
            for number in &request.writes {
                self.ledger.committed(&self.plan, *number, written);
            }
            let after = self.mark(key);
            self.ledger.applied(&self.plan, written, before.as_ref(), after.as_ref());
        }
        if copy {
            return;
        }
        let way = self.way();
        let told = !matches!(fate, Fate::AnswerLost | Fate::SaysFailure);
        self.slots[slot].means =
            told.then_some((matches!(answer, Answer::Applied(_)), matches!(answer, Answer::Refused(_))));
        match fate {
            Fate::AnswerLost => self.reset_at(self.now + way, slot),
            _ if by_sdk.is_some() => self.answer_at(self.now + way, slot, by_sdk.unwrap_or(Outcome::Reset)),
            Fate::SaysFailure => self.answer_at(self.now + way, slot, Outcome::Answer(Answer::Unknown)),
            _ => self.answer_at(self.now + way, slot, Outcome::Answer(answer)),
        }
    }

    /// Shows the engine what others did to a row.
    fn mirror(&self, key: usize) {
        let key = &self.keys[key];
        if let Some(engine) = &self.engine {
            engine.set(key, self.rows.get(key));
        }
    }

    /// Peers have a good network: what they do on a bad one is their affair.
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

    fn peers_arrives(&mut self, slot: usize, op: Op) {
        let Op { key, what } = op.clone();
        let answer = op.apply(&mut self.rows, &self.keys[key].clone());
        self.mix(self.now ^ (slot as u64) << 32 ^ code(&answer));
        if matches!(answer, Answer::Applied(_)) {
            self.mirror(key);
            let Slot { call, begun, .. } = self.slots[slot];
            let now = self.now;
            match what {
                What::Put { .. } => {
                    let (read, copy, late, refused) = (begun, false, false, false);
                    let written = Written { key, call, slot, begun, read, now, copy, late, refused };
                    self.ledger.granted_to_peer(written);
                }
                What::Update { set, .. } if set.iter().any(|(name, _)| *name == RELEASED) => {
                    self.ledger.released_by_peer(key)
                }
                _ => {}
            }
        }
        let way = self.way();
        self.answer_at(self.now + way, slot, answer.into());
    }

    /// The server's clock as a `Date` header says it: in whole seconds.
    pub(crate) fn server_time(&self) -> SystemTime {
        UNIX_EPOCH + EPOCH + Duration::from_secs(self.now / 1_000_000_000)
    }

    // What happens by itself.

    pub(crate) fn happens(&mut self, event: Event) {
        match event {
            Event::Wake(..) | Event::Spawn(_) => {}
            Event::Arrive(message) => self.arrives(*message),
            Event::ArrivePeers(slot, op) => self.peers_arrives(slot, *op),
            Event::Answer(slot) => {
                self.slots[slot].arrived = Some(self.server_time());
                let process = self.slots[slot].process;
                if !self.slots[slot].dropped {
                    let (heard, refused) = self.slots[slot].means.unwrap_or_default();
                    self.slots[slot].refused = refused;
                    self.slots[slot].heard = heard;
                    self.at(self.now, Event::Wake(process, None));
                }
            }
            Event::Claim { granted, fresh } => self.claims(granted, fresh),
            Event::Effect(granted) => {
                self.say(|_| format!("an effect of grant no {granted} reaches the resource"));
                let Self { ledger, plan, fenced, .. } = self;
                ledger.effect(plan, granted, *fenced);
            }
            Event::Hand(token) if self.handed.len() < 4 => self.handed.push(token),
            Event::Hand(_) => {}
            Event::Observed(observation) => self.observed = Some((observation, self.now)),
            Event::Fenced(fenced) => {
                let Fenced { key, granted, condition } = *fenced;
                let holds = expression::holds(&condition, self.rows.get(&self.keys[key]));
                self.say(|_| format!("a fenced transaction of grant no {granted} arrives: {holds}"));
                self.mix(self.now ^ u64::from(holds));
                if holds {
                    self.counts().fenced += 1;
                    self.ledger.effect(&self.plan, granted, false);
                } else {
                    self.counts().fenced_off += 1;
                }
            }
            _ if self.calm => {}
            Event::DeleteRow => {
                let key = self.rng.usize(..self.plan.keys);
                self.say(|_| format!("the row {key} is deleted by hand"));
                self.rows.set(&self.keys[key].clone(), None);
                self.mirror(key);
                self.ledger.row_is_gone(key);
                self.again(self.plan.faults.row_deleted, Event::DeleteRow);
            }
            Event::Jump => {
                let living: Vec<_> = (0..self.processes.len()).filter(|id| self.processes[*id].alive).collect();
                if let Some(id) = self.rng.choice(living) {
                    self.jump(id);
                }
                self.again(self.plan.clocks.jumps * self.alive.max(1) as f64, Event::Jump);
            }
            Event::Throttle => {
                let lasting = self.rng.u64(1..=5) * nanos(self.plan.lease);
                self.throttled_until = self.now + lasting;
                self.again(self.plan.faults.bursts, Event::Throttle);
            }
        }
    }

    pub(crate) fn jump(&mut self, id: ProcessId) {
        let now = self.now;
        let Self { processes, rng, .. } = self;
        processes[id].clocks.jump(now, rng);
        if let Some(call) = processes[id].call {
            self.ledger.calls[call].disturbed = true;
        }
        self.counts().jumps += 1;
        self.say(|_| format!("the wall clock of {id} is set"));
    }

    fn claims(&mut self, granted: usize, fresh: bool) {
        self.say(|_| format!("grant no {granted} says mine"));
        let Self { ledger, plan, now, .. } = self;
        ledger.mine(plan, granted, *now);
        if !fresh {
            return;
        }
        // Whoever else holds the key is asked at the same instant.
        let key = self.ledger.grants[granted].key;
        for id in 0..self.processes.len() {
            let holds = self.processes[id].holds.filter(|holds| *holds != granted);
            if self.processes[id].alive && holds.is_some_and(|holds| self.ledger.grants[holds].key == key) {
                self.processes[id].nudged = true;
                self.at(self.now, Event::Wake(id, None));
            }
        }
    }

    /// A guard was asked just now and said mine.
    pub(crate) fn says_mine(&mut self, id: ProcessId, granted: usize, fresh: bool) {
        let read = self.processes[id].read;
        self.at(read, Event::Claim { granted, fresh });
    }

    pub(crate) fn longest(&self) -> Nanos {
        nanos(self.plan.longest)
    }

    pub(crate) fn is_held_by(&self, key: usize, grant: Grant, token: u64) -> bool {
        !self.ledger.is_resurrected(key)
            && self.mark(key).is_some_and(|mark| {
                mark.own.is_some_and(|own| own.grant == grant) && mark.token == Some(token) && !mark.released
            })
    }

    /// Within which time whoever waits for this key gets it, when nobody lives who could hold it.
    pub(crate) fn takeover_bound(&self, key: usize) -> Duration {
        // One poll and its jitter, and some requests.
        let polls = Duration::from_millis(280) + self.plan.latency * 8;
        let Some(mark) = self.mark(key).filter(|mark| !mark.released) else { return polls };
        if self.plan.clocks.beyond_bounds {
            return Duration::MAX;
        }
        // By clocks that may be slow, and one that somebody sets back meanwhile.
        let watched = Duration::from_millis(mark.lease).mul_f64(1.05 * 1.025) + self.plan.skew + polls;
        let ends = mark.ends.filter(|_| mark.own.is_some() && self.plan.by_wall_clock);
        let Some(ends) = ends else { return watched };
        let left = (Duration::from_millis(ends)).saturating_sub(EPOCH + Duration::from_nanos(self.now));
        watched.min(left.mul_f64(1.025) + self.plan.skew * 2 + polls)
    }

    pub(crate) fn granted_to(&mut self, key: usize, grant: Grant, token: u64) -> Option<usize> {
        self.ledger.find(key, grant, token)
    }
}

/// Locks, then idempotent works.
fn keys(plan: &Plan) -> Vec<LockKey> {
    let locks = (0..plan.keys).map(|key| LockKey::from(["a", "b"][key]));
    locks.chain((0..plan.jobs).map(|job| LockKey::from(format!("once/{job}")))).collect()
}

/// What a process does when it is woken.
pub(crate) enum Turn {
    Nothing,
    Go,
    Crash,
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

fn code(answer: &Answer) -> u64 {
    match answer {
        Answer::Applied(_) => 1,
        Answer::Refused(Some(_)) => 2,
        Answer::Refused(None) => 3,
        Answer::Found(Some(_)) => 4,
        Answer::Found(None) => 5,
        Answer::Unavailable => 6,
        Answer::Rejected(_) => 7,
        Answer::Unknown => 8,
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
