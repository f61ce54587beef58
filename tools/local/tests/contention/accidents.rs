//! Decides what happens to requests on their way.

use crate::stage::COUNTERS;
use fastrand::Rng;
use lambda_lock_local::authorize::{Call, Fate};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How many kinds of accidents there are for the lock's requests.
const KINDS: usize = 9;
/// One of this many of the counter's requests has an accident. That is rare enough for the SDK's two
/// retries.
const COUNTERS_RARE: u64 = 7;

/// A plan of accidents. Clones share the plan.
#[derive(Clone)]
pub(crate) struct Accidents {
    seed: u64,
    /// Of this many requests of the lock, one has each kind of accident.
    rare: usize,
    /// How late a copy arrives at most.
    latest: Duration,
    state: Arc<Mutex<State>>,
}

struct State {
    rng: Rng,
    /// What happens to the next requests of the lock.
    next: Vec<Fate>,
    /// The number of requests of the counter.
    counters: u64,
    happened: BTreeMap<&'static str, u32>,
}

impl Accidents {
    pub(crate) fn new(rare: usize, latest: Duration) -> Self {
        let given = std::env::var("CONTENTION_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        // Not `eprintln!`, because the test harness would hold it back.
        let _ = writeln!(std::io::stderr(), "CONTENTION_SEED={seed}");
        let rng = Rng::with_seed(seed);
        let state = State { rng, next: Vec::new(), counters: 0, happened: BTreeMap::new() };
        Self { seed, rare, latest, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns what happens to this request.
    pub(crate) fn fate(&self, call: &Call) -> Fate {
        let about_the_counter = call.needs.iter().any(|grant| grant.resource.ends_with(COUNTERS));
        let mut state = self.state.lock().unwrap();
        let fate = if about_the_counter { self.of_the_counter(&mut state) } else { self.of_the_lock(&mut state) };
        if let Some(name) = name(fate) {
            *state.happened.entry(name).or_default() += 1;
        }
        fate
    }

    fn of_the_lock(&self, state: &mut State) -> Fate {
        if state.next.is_empty() {
            let rng = &mut state.rng;
            let mut next = vec![
                Fate::RequestLost,
                Fate::AnswerLost,
                Fate::AppliedButFails,
                Fate::Throttled,
                Fate::AnsweredAfter(self.delay(rng) / 8),
                Fate::AppliedAgain(self.delay(rng)),
                Fate::AppliedLate(self.delay(rng)),
                Fate::Swallowed,
                Fate::Conflict,
            ];
            assert_eq!(next.len(), KINDS);
            next.resize(self.rare.max(KINDS), Fate::Answered);
            rng.shuffle(&mut next);
            state.next = next;
        }
        state.next.pop().unwrap_or(Fate::Answered)
    }

    /// Returns what happens to a request of the counter. No response to it is lost, because its write is
    /// not idempotent. A worker that does not know the outcome, while a newer holder has written since,
    /// could not count correctly.
    fn of_the_counter(&self, state: &mut State) -> Fate {
        state.counters += 1;
        if !state.counters.is_multiple_of(COUNTERS_RARE) {
            return Fate::Answered;
        }
        match state.counters / COUNTERS_RARE % 4 {
            0 => Fate::RequestLost,
            1 => Fate::AnsweredAfter(self.delay(&mut state.rng) / 8),
            2 => Fate::Throttled,
            _ => Fate::AppliedAgain(self.delay(&mut state.rng)),
        }
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        self.latest.mul_f64(rng.f64())
    }

    /// Asserts that each kind of accident happened. Without accidents an exact count proves nothing.
    pub(crate) fn assert_all_happened(&self, often: u32) {
        let happened = &self.state.lock().unwrap().happened;
        assert_eq!(happened.len(), KINDS, "{happened:?}");
        assert!(happened.values().all(|count| *count >= often), "{happened:?}");
    }
}

impl fmt::Display for Accidents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CONTENTION_SEED={}, {:?}", self.seed, self.state.lock().unwrap().happened)
    }
}

/// Returns the name of an accident, or `None` if nothing happened to the request.
fn name(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Answered => None,
        Fate::AnsweredAfter(_) => Some("slow"),
        Fate::AnswerLost => Some("reset after it was applied"),
        Fate::Swallowed => Some("not applied and never answered"),
        Fate::Throttled => Some("throttled"),
        Fate::Conflict => Some("refused because a transaction has the row"),
        Fate::RequestLost => Some("reset before it was applied"),
        Fate::AppliedButFails => Some("applied and answered with a 500"),
        Fate::AppliedAgain(_) => Some("applied again later"),
        Fate::AppliedLate(_) => Some("applied late and never answered"),
    }
}
