//! The whole simulated world: true time, future events, processes, network, table and ledger. One seed decides all of
//! it.

mod happenings;
mod line;
mod processes;
mod queue;
mod spoil;
mod traffic;

use crate::clocks::{EPOCH, Nanos};
use crate::counts::Counts;
use crate::ledger::{Ledger, ProcessId};
use crate::network::Slot;
use crate::plan::{Chance, Plan, RETENTION, is_crowd};
use crate::sdk::Engine;
use crate::table::{Mark, Rows};
use crate::worker::Role;
use fastrand::Rng;
use lambda_lock::{Observation, SavedLock};
use lambda_lock_protocol::{Grant, LockKey, Schema, Ttl};
pub(crate) use line::Line;
use processes::Process;
pub(crate) use processes::Turn;
use queue::Scheduled;
pub(crate) use queue::{Event, Fenced};
use spoil::Spoiled;
pub(crate) use spoil::same;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
pub(crate) use traffic::Message;

/// The names of attributes that only some tables have.
pub(crate) const SORT: &str = "sort";
pub(crate) const TTL: &str = "expiresAt";

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
        // Only one thread uses it, so waiting would never end.
        match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("the world is already locked by the caller"),
        }
    }
}

pub(crate) struct State {
    pub(crate) now: Nanos,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) schema: Schema,
    pub(crate) processes: Vec<Process>,
    /// The process that runs now.
    pub(crate) running: ProcessId,
    pub(crate) alive: usize,
    timers: Vec<bool>,
    pub(crate) slots: Vec<Slot>,
    /// For each transaction: when the clocks were read for it.
    transactions: HashMap<String, (Nanos, Nanos)>,
    pub(crate) rows: Rows,
    pub(crate) engine: Option<Engine>,
    pub(crate) keys: Vec<LockKey>,
    pub(crate) ledger: Ledger,
    /// For each lock: those who wait in line.
    pub(crate) lines: Vec<Line>,
    /// Locks that are being handed over to other processes.
    pub(crate) handed: Vec<(SavedLock, Option<usize>)>,
    /// The watchers' last observation, and when it was made.
    pub(crate) observed: Option<(Observation, Nanos)>,
    throttled_until: Nanos,
    mute_until: Nanos,
    /// For each key: what somebody wrote into the row by hand.
    spoiled: Vec<Option<Spoiled>>,
    /// The faults have stopped.
    pub(crate) calm: bool,
    pub(crate) fenced: bool,
    pub(crate) hash: u64,
    pub(crate) trace: Option<Vec<String>>,
}

impl State {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::of(&mut rng);
        let plan = if is_crowd(seed) { plan.of_crowd(seed) } else { plan };
        let schema = Schema {
            dialect: plan.dialect,
            sort_key_attribute: plan.sort_key.then(|| SORT.to_owned()),
            ttl: plan.ttl.then(|| Ttl { attribute: TTL.to_owned(), retention: RETENTION }),
            ..Schema::default()
        };
        let mut state = Self {
            now: 0,
            queue: BinaryHeap::with_capacity(256),
            scheduled: 0,
            rng,
            schema: schema.clone(),
            processes: Vec::new(),
            running: 0,
            alive: 0,
            timers: Vec::with_capacity(1024),
            slots: Vec::with_capacity(512),
            transactions: HashMap::new(),
            rows: Rows::new(schema),
            engine: None,
            keys: keys(&plan),
            ledger: Ledger::new(plan.keys + plan.jobs),
            lines: vec![Line::default(); plan.keys],
            handed: Vec::new(),
            observed: None,
            throttled_until: 0,
            mute_until: 0,
            spoiled: vec![None; plan.keys],
            calm: false,
            fenced: true,
            hash: seed,
            trace: trace.then(Vec::new),
            plan,
        };
        let Plan { workers, sort_key, ttl, .. } = state.plan;
        let counts = state.counts();
        counts.crowds = u64::from(workers >= 8);
        counts.sort_keys = u64::from(sort_key);
        counts.ttls = u64::from(ttl);
        state.say(|state| format!("{:#?}", state.plan));
        state.begin();
        state
    }

    fn begin(&mut self) {
        for _ in 0..self.plan.workers {
            self.spawn_within(Role::Worker, 200);
        }
        for _ in 0..self.plan.sleepers {
            self.spawn_within(Role::Sleeper, 200);
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
            (self.plan.faults.spoiled, Event::Spoil),
            (self.plan.clocks.jumps, Event::Jump),
            (self.plan.faults.bursts, Event::Throttle),
        ] {
            self.again(often, event);
        }
    }

    /// Schedules the next event that happens `often` times in a minute.
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

    pub(crate) fn say(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>10.3} ms  {}", self.now as f64 / 1e6, what(self));
            self.trace.get_or_insert_default().push(line);
        }
    }

    /// Traces what a process does, with the time at which the process is.
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

    pub(crate) fn longest(&self) -> Nanos {
        nanos(self.plan.longest)
    }

    /// The content of the row now.
    pub(crate) fn mark(&self, key: usize) -> Option<Mark> {
        self.rows.get(&self.keys[key]).map(Mark::of)
    }

    pub(crate) fn is_held_by(&self, key: usize, grant: Grant, token: u64) -> bool {
        !self.ledger.is_resurrected(key)
            && self.mark(key).is_some_and(|mark| {
                mark.own.is_some_and(|own| own.grant == grant) && mark.token == Some(token) && !mark.released
            })
    }

    pub(crate) fn granted_to(&mut self, key: usize, grant: Grant, token: u64) -> Option<usize> {
        self.ledger.find(key, grant, token)
    }

    /// The time within which a waiter gets this key if no living process can hold it.
    pub(crate) fn takeover_bound(&self, key: usize) -> Duration {
        // One poll with its jitter, and some requests.
        let polls = Duration::from_millis(280) + self.plan.latency * 8;
        let Some(mark) = self.mark(key) else { return polls };
        // Those who seem to be in line are left the lock for 3.5 s.
        let has_line = mark.last_ticket > mark.served_ticket;
        let polls =
            if has_line { polls * 2 + Duration::from_millis(3_500).mul_f64(1.05) + self.plan.skew * 2 } else { polls };
        if self.plan.clocks.beyond_bounds && (has_line || !mark.released) {
            return Duration::MAX;
        }
        if mark.released {
            return polls;
        }
        // Clocks may be slow, and one may be set back during the wait.
        let watched = Duration::from_millis(mark.lease).mul_f64(1.05 * 1.025) + self.plan.skew + polls;
        let ends_at_ms = mark.ends_at_ms.filter(|_| mark.own.is_some() && self.plan.by_wall_clock);
        let Some(ends_at_ms) = ends_at_ms.filter(|_| !self.plan.clocks.behind) else { return watched };
        let left = (Duration::from_millis(ends_at_ms)).saturating_sub(EPOCH + Duration::from_nanos(self.now));
        watched.min(left.mul_f64(1.025) + self.plan.skew * 2 + polls)
    }
}

/// The locks first, then the idempotent works.
fn keys(plan: &Plan) -> Vec<LockKey> {
    let key = |key: String| LockKey::new(key, plan.sort_key.then(|| "s".to_owned()));
    let locks = (0..plan.keys).map(|lock| key(["a", "b"][lock].to_owned()));
    locks.chain((0..plan.jobs).map(|job| key(format!("once/{job}")))).collect()
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}
