//! Runs one seed from the first event to the last.

use crate::counts::Counts;
use crate::ledger::{Ended, Invariant, Violation};
use crate::sdk::Engine;
use crate::several;
use crate::worker::{Me, Role};
use crate::world::{Event, State, Turn, World};
use lambda_lock::LockClient;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// How a simulation ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed of the run.
    pub seed: u64,
    /// A hash of everything that happened, in order.
    pub hash: u64,
    /// How often what happened.
    pub counts: Counts,
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// The events line by line, if a trace was requested.
    pub trace: Vec<String>,
}

/// The options of a run besides the seed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Records everything that happens.
    pub trace: bool,
    /// The resource refuses smaller tokens. Without this the simulation must find violations.
    pub fenced: bool,
    /// Uses the real SDK, and compares with a DynamoDB engine.
    pub sdk: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { trace: false, fenced: true, sdk: false }
    }
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Run {
    if seed >= several::FIRST_SEED {
        return several::run(seed, options.trace);
    }
    let mut state = State::new(seed, options.trace);
    state.fenced = options.fenced;
    state.engine = options.sdk.then(|| Engine::new(state.plan.sort_key));
    let world = World::new(state);
    let simulation = Simulation { world: world.clone(), tasks: Vec::new(), clients: Vec::new(), last: 0 };
    let gone = catch_unwind(AssertUnwindSafe(|| simulation.go()));
    let mut state = world.state();
    if let Err(panic) = gone {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        state.ledger.violate(Invariant::NoPanic, text);
    }
    Run {
        seed,
        hash: state.hash,
        counts: state.ledger.counts.clone(),
        violation: state.ledger.violation.clone(),
        trace: state.trace.take().unwrap_or_default(),
    }
}

/// Whether a task must be polled again at once.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Some hundred times as many events as a seed usually has. A run that does not end must fail instead of hang.
const MAX_EVENTS: u64 = 1_000_000;

struct Simulation {
    world: World,
    /// By process. `None`: the process has ended.
    tasks: Vec<Option<Task>>,
    clients: Vec<LockClient>,
    /// The number of keys whose last waiter has run.
    last: usize,
}

impl Simulation {
    fn go(mut self) {
        for happened in 0.. {
            let mut state = self.world.state();
            if state.ledger.violation.is_some() {
                break;
            }
            if happened > MAX_EVENTS {
                state.ledger.violate(Invariant::RunEnds, format!("the run has not ended after {happened} events"));
                break;
            }
            let Some(event) = state.next() else {
                // Nothing is in flight any more, late copies included.
                if self.last == state.plan.keys {
                    if let Some(id) = self.tasks.iter().position(Option::is_some) {
                        let what = format!("{:?} {id} waits, but no event is left", state.processes[id].role);
                        state.ledger.violate(Invariant::RunEnds, what);
                    }
                    break;
                }
                let now = state.now;
                state.calm = true;
                let key = self.last;
                state.repair(key);
                state.at(now, Event::Spawn(Role::Last(key)));
                self.last += 1;
                continue;
            };
            let over = state.ledger.counts.grants as usize >= state.plan.grants || state.now >= state.longest();
            if over && !state.calm {
                state.say(|_| "the faults stop".to_owned());
                state.calm = true;
                for key in 0..state.plan.keys {
                    state.repair(key);
                }
            }
            match event {
                Event::Wake(id, timer) => match state.turn(id, timer) {
                    Turn::Nothing => {}
                    Turn::Go => {
                        drop(state);
                        self.poll(id);
                    }
                    Turn::Crash => {
                        state.counts().crashes += 1;
                        state.say(|_| format!("process {id} crashes"));
                        drop(state);
                        self.end(id);
                    }
                },
                Event::Spawn(role) if state.calm && !matches!(role, Role::Last(_)) => {}
                Event::Spawn(role) => {
                    let id = state.spawn(role);
                    let (now, shares) = (state.now, state.processes[id].shares);
                    state.at(now, Event::Wake(id, None));
                    state.running = id;
                    drop(state);
                    let me = Me::new(self.world.clone(), id, self.clients.get(shares).cloned());
                    self.clients.push(me.locks.clone());
                    self.tasks.push(Some(role.live(me)));
                }
                event => state.happens(event),
            }
        }
        // Remaining guards write log lines when they are dropped, so the world must still exist.
        self.tasks.clear();
    }

    fn poll(&mut self, id: usize) {
        self.world.state().running = id;
        let Some(task) = &mut self.tasks[id] else { return };
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if task.as_mut().poll(&mut context).is_ready() {
                return self.end(id);
            }
            // Everything that a task waits for is in the queue. Only the SDK's own parts wake a task by themselves.
            if !woken.0.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    }

    /// The process has ended. A process of the same role may replace it.
    fn end(&mut self, id: usize) {
        self.world.state().running = id;
        self.tasks[id] = None;
        let mut state = self.world.state();
        state.call_ends(id, Ended::Unknown, None);
        let process = &mut state.processes[id];
        process.alive = false;
        process.holds = None;
        let role = process.role;
        state.alive -= 1;
        let pause = match role {
            Role::Watcher => state.plan.lease.as_millis() as u64,
            _ => 300,
        };
        if !matches!(role, Role::Last(_)) && !state.calm {
            state.spawn_within(role, pause);
        }
    }
}
