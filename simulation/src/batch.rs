//! Many seeds on all cores.

use crate::counts::Counts;
use crate::ledger::{Invariant, Violation};
use crate::run::{Options, Run, run};
use lambda_lock::mistakes::{self, Mistake};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One seed in so many is run twice, to see that it runs the same.
const RUN_TWICE: u64 = 1000;

/// One seed in so many is run with the real SDK and a DynamoDB engine, too.
const BY_SDK: u64 = 500;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The first seed.
    pub base: u64,
    /// How many of them.
    pub seeds: u64,
    /// On how many threads.
    pub threads: usize,
    /// The mistake to be made.
    pub mistake: Option<Mistake>,
    /// Stop after so many violations.
    pub stop: Option<usize>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many seeds were run.
    pub seeds: u64,
    /// How often what happened in all of them.
    pub counts: Counts,
    /// In how many seeds each of it happened at all.
    pub seeds_with: Counts,
    /// Of all that happened in all of them, in whichever order they ran: what only moves code leaves it as it is.
    pub hash: u64,
    /// By seed.
    pub violations: Vec<(u64, Violation)>,
    /// How long it took.
    pub took: Duration,
}

impl Batch {
    /// Runs them. `tick` hears now and then how many are done.
    pub fn run(&self, tick: impl Fn(u64) + Sync) -> Summary {
        let (next, found) = (AtomicU64::new(0), AtomicUsize::new(0));
        let summary = Mutex::new(Summary::default());
        let started = Instant::now();
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    let own = self.work(&next, &found, &tick);
                    summary.lock().unwrap().add(own);
                });
            }
        });
        let mut summary = summary.into_inner().unwrap();
        summary.took = started.elapsed();
        summary.violations.sort_by_key(|(seed, _)| *seed);
        summary
    }

    fn work(&self, next: &AtomicU64, found: &AtomicUsize, tick: &impl Fn(u64)) -> Summary {
        mistakes::set(self.mistake);
        let mut own = Summary::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.seeds || self.stop.is_some_and(|stop| found.load(Ordering::Relaxed) >= stop) {
                return own;
            }
            let seed = self.base.wrapping_add(number);
            let Run { counts, violation, hash, .. } = run(seed, Options::default());
            own.seeds += 1;
            own.hash = own.hash.wrapping_add(hash);
            own.counts.add(&counts);
            own.seeds_with.add(&counts.any());
            found.fetch_add(usize::from(violation.is_some()), Ordering::Relaxed);
            own.violations.extend(violation.map(|violation| (seed, violation)));
            own.violations.extend(self.again(number, hash).map(|violation| (seed, violation)));
            if own.seeds.is_multiple_of(64) {
                tick(64);
            }
        }
    }
}

impl Batch {
    /// Runs a share of the seeds again, and another share with the real SDK.
    fn again(&self, number: u64, hash: u64) -> Option<Violation> {
        let seed = self.base.wrapping_add(number);
        if self.mistake.is_some() {
            return None;
        }
        if number.is_multiple_of(RUN_TWICE) && run(seed, Options::default()).hash != hash {
            let what = "another run of this seed ended otherwise".to_owned();
            return Some(Violation { invariant: Invariant::SameSeedSameRun, what });
        }
        if number % BY_SDK == 1 {
            let by_sdk = run(seed, Options { sdk: true, ..Options::default() });
            if by_sdk.violation.is_some() || by_sdk.hash != hash {
                let what = format!("with the real SDK it ended otherwise: {:?}", by_sdk.violation);
                return Some(Violation { invariant: Invariant::SdkAgrees, what });
            }
        }
        None
    }
}

impl Summary {
    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.hash = self.hash.wrapping_add(other.hash);
        self.counts.add(&other.counts);
        self.seeds_with.add(&other.seeds_with);
        self.violations.extend(other.violations);
    }
}
