//! Runs many seeds on all cores.

use crate::counts::Counts;
use crate::ledger::{Invariant, Violation};
use crate::plan::is_crowd;
use crate::run::{Options, Run, run};
use crate::several;
use lambda_lock_protocol::mistakes::{self, Mistake};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One seed in this many is run twice, to check that both runs are the same.
const RUN_TWICE: u64 = 1000;

/// One seed in this many is also run with the real SDK and a DynamoDB engine.
const BY_SDK: u64 = 500;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The first seed.
    pub base: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The number of threads.
    pub threads: usize,
    /// The mistake that is switched on.
    pub mistake: Option<Mistake>,
    /// Stops after this many violations.
    pub stop: Option<usize>,
}

/// The result of a batch.
#[derive(Debug, Default)]
pub struct Summary {
    /// The number of seeds that were run.
    pub seeds: u64,
    /// How often each event happened in all seeds.
    pub counts: Counts,
    /// In how many seeds each event happened.
    pub seeds_with: Counts,
    /// A hash of all that happened in all seeds, independent of their order. A change that only moves code does not
    /// change it.
    pub hash: u64,
    /// Each violation with its seed.
    pub violations: Vec<(u64, Violation)>,
    /// The duration of the batch.
    pub took: Duration,
}

impl Batch {
    /// Runs the batch. `tick` is called now and then with the number of seeds done since its last call.
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
            if number.is_multiple_of(several::ONE_IN) && !is_crowd(seed) {
                let seed = several::FIRST_SEED.wrapping_add(seed);
                let Run { counts, violation, hash, .. } = run(seed, Options::default());
                own.hash = own.hash.wrapping_add(hash);
                own.counts.add(&counts);
                own.seeds_with.add(&counts.any());
                found.fetch_add(usize::from(violation.is_some()), Ordering::Relaxed);
                own.violations.extend(violation.map(|violation| (seed, violation)));
            }
            if own.seeds.is_multiple_of(64) {
                tick(64);
            }
        }
    }
}

impl Batch {
    /// Runs some of the seeds again, and others with the real SDK.
    fn again(&self, number: u64, hash: u64) -> Option<Violation> {
        let seed = self.base.wrapping_add(number);
        if self.mistake.is_some() {
            return None;
        }
        if number.is_multiple_of(RUN_TWICE) && run(seed, Options::default()).hash != hash {
            let what = "a second run of this seed ended differently".to_owned();
            return Some(Violation { invariant: Invariant::SameSeedSameRun, what });
        }
        if number % BY_SDK == 1 {
            let by_sdk = run(seed, Options { sdk: true, ..Options::default() });
            if by_sdk.violation.is_some() || by_sdk.hash != hash {
                let what = format!("with the real SDK the run ended differently: {:?}", by_sdk.violation);
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
