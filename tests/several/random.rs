//! Real guards under random schedules: single locks, lines, sets and chains on a few keys, by processes that freeze and die, whose
//! requests are lost, late, slow or doubled, and whose clocks differ within their bounds.
//!
//! The schedule follows from its seed. `LAMBDA_LOCK_SCHEDULES=1000` runs the seeds 0 to 999, `LAMBDA_LOCK_SCHEDULE=7` the seed 7
//! alone, and both together a thousand seeds from that one on.

#![allow(clippy::print_stdout, reason = "the counts are what a run of many seeds shows")]

use fastrand::Rng;
use lambda_lock::{Budget, Error, Lock, LockClient, LockKey, LockSet};
use lambda_lock_testkit::{Fault, Process, Table, case, ends_within, millis, secs};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

const KEYS: [&str; 3] = ["a", "b", "c"];
/// How many seeds an ordinary run has.
const SEEDS: u64 = 10;
/// For how long processes work and requests fail.
const ROUGH: Duration = secs(30);
const MAX_LEASE: Duration = secs(5);
/// How much longer than its budget a call may take: for requests under way, and to give back what it had.
const OVERTIME: Duration = secs(4);
/// Wall clocks differ by less than the skew of 2 s.
const FURTHEST: i64 = 900;

enum Guard {
    One(Lock),
    Set(LockSet),
}

impl Guard {
    /// The tokens by key.
    fn tokens(&self) -> BTreeMap<String, u64> {
        match self {
            Guard::One(lock) => [(lock.key().key().to_owned(), lock.fencing_token())].into(),
            Guard::Set(set) => {
                let token_of = |key: &LockKey| set.fencing_token_of(key.clone()).unwrap();
                set.keys().map(|key| (key.key().to_owned(), token_of(key))).collect()
            }
        }
    }

    fn remaining(&self) -> Duration {
        match self {
            Guard::One(lock) => lock.remaining(),
            Guard::Set(set) => set.remaining(),
        }
    }

    async fn checkpoint(&mut self) -> Result<(), Error> {
        match self {
            Guard::One(lock) => lock.checkpoint().await,
            Guard::Set(set) => set.checkpoint().await,
        }
    }

    async fn keep_alive(&mut self, work: impl Future<Output = ()>) -> Result<(), Error> {
        match self {
            Guard::One(lock) => lock.keep_alive(work).await,
            Guard::Set(set) => set.keep_alive(work).await,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Guard::One(lock) => lock.release().await.map(drop),
            Guard::Set(set) => set.release().await.map(drop),
        }
    }
}

/// A lock of a guard, and until when the guard relies on it.
struct Relied {
    guard: usize,
    token: u64,
    until: Instant,
}

/// What all guards say, by key.
#[derive(Default)]
struct Ledger {
    relied: BTreeMap<String, Vec<Relied>>,
    /// The newest token of each row.
    newest: BTreeMap<&'static str, u64>,
    guards: usize,
    grants: u64,
}

impl Ledger {
    fn granted(&mut self, guard: &Guard) -> usize {
        self.guards += 1;
        let (remaining, id) = (guard.remaining(), self.guards);
        for (key, token) in guard.tokens() {
            let all = self.relied.entry(key.clone()).or_default();
            let same = all.iter().find(|one| one.token == token);
            assert!(same.is_none(), "P1: {key} has the token {token} twice");
            if !remaining.is_zero() {
                let largest = all.iter().map(|one| one.token).max();
                assert!(largest < Some(token), "P1: the token {token} of {key} comes after {largest:?}");
            }
            all.push(Relied { guard: id, token, until: Instant::now() });
        }
        self.grants += 1;
        self.relies(id, remaining);
        id
    }

    /// The guard says for how long its locks are ours.
    fn relies(&mut self, guard: usize, remaining: Duration) {
        if !remaining.is_zero() {
            self.works(guard);
        }
        let until = Instant::now() + remaining;
        self.relied.values_mut().flatten().filter(|one| one.guard == guard).for_each(|one| one.until = until);
    }

    /// The work of the guard goes on.
    fn works(&self, guard: usize) {
        let now = Instant::now();
        for (key, all) in self.relied.iter().filter(|(_, all)| all.iter().any(|one| one.guard == guard)) {
            let other = all.iter().find(|one| one.guard != guard && one.until > now);
            assert!(
                other.is_none(),
                "P2: two guards rely on {key}, one of them with token {:?}",
                other.map(|one| one.token)
            );
        }
    }

    /// Reads all rows. Their tokens only grow.
    fn look(&mut self, table: &Table) {
        for key in KEYS {
            let token = table.attribute(key, "fencingToken").map_or(0, |token| token.parse().unwrap());
            let newest = self.newest.insert(key, token);
            assert!(newest <= Some(token), "P1: the token of the row {key} went from {newest:?} back to {token}");
        }
    }
}

/// One process of a schedule.
struct Worker {
    table: Table,
    process: Process,
    locks: LockClient,
    ledger: Rc<RefCell<Ledger>>,
    rng: RefCell<Rng>,
    /// For how long it was frozen.
    frozen: Rc<RefCell<Duration>>,
    /// The network delivers some of its requests twice.
    doubles: bool,
    until: Instant,
}

fn between(rng: &mut Rng, range: Range<Duration>) -> Duration {
    millis(rng.u64(range.start.as_millis() as u64..range.end.as_millis() as u64))
}

impl Worker {
    fn drawn(&self, range: Range<Duration>) -> Duration {
        between(&mut self.rng.borrow_mut(), range)
    }

    fn one_in(&self, n: u32) -> bool {
        self.rng.borrow_mut().u32(..n) == 0
    }

    /// Acquires and works until the rough time is over.
    async fn live(&self, name: String) {
        let mut calls = 0;
        while Instant::now() < self.until {
            calls += 1;
            if let Some(guard) = self.acquire(format!("{name}/{calls}")).await {
                self.hold(guard).await;
            }
            sleep(self.drawn(millis(1)..millis(200))).await;
        }
    }

    async fn acquire(&self, owner: String) -> Option<Guard> {
        let mut keys = KEYS;
        self.rng.borrow_mut().shuffle(&mut keys);
        let keys = &keys[..self.rng.borrow_mut().usize(2..=keys.len())];
        let lease = self.drawn(millis(600)..MAX_LEASE);
        let lasting = self.drawn(secs(1)..secs(20));
        let budget = self.process.budget(lasting).reserve(secs(0));
        let (began, frozen) = (Instant::now(), *self.frozen.borrow());
        let kind = self.rng.borrow_mut().u32(..10);
        let call = async {
            match kind {
                0..=3 => {
                    let acquire = self.locks.acquire_all(keys.iter().copied()).owner(&owner).lease(lease);
                    acquire.within(&budget).in_order().await.map(Guard::Set)
                }
                4..=5 => {
                    let acquire = self.locks.acquire_all(keys.iter().copied()).owner(&owner).lease(lease);
                    acquire.within(&budget).await.map(Guard::Set)
                }
                _ => {
                    let acquire = self.locks.acquire(keys[0]).owner(&owner).lease(lease).within(&budget);
                    if kind < 9 { acquire.in_turn().await } else { acquire.await }.map(Guard::One)
                }
            }
        };
        // Some callers give up in the middle.
        let patience = if self.one_in(20) { self.drawn(millis(1)..secs(3)) } else { secs(300) };
        let acquired = timeout(patience, call).await.ok()?;
        let took = began.elapsed().saturating_sub(*self.frozen.borrow() - frozen);
        assert!(took <= lasting + OVERTIME, "a call of {lasting:?} took {took:?}");
        let error = match acquired {
            Ok(guard) => return Some(guard),
            Err(error) => error,
        };
        assert!(!error.is_lost(), "P3: no acquire fails as lost: {error}");
        if !error.is_unknown() && !self.doubles {
            for key in KEYS {
                let is_ours = self.table.attribute(key, "ownerName").is_some_and(|name| name == owner);
                assert!(!is_ours || self.table.is_released(key), "P5: {key} is ours after: {error}");
            }
        }
        None
    }

    async fn hold(&self, mut guard: Guard) {
        let id = self.ledger.borrow_mut().granted(&guard);
        let steps = self.rng.borrow_mut().usize(..3);
        for _ in 0..steps {
            let held = if self.one_in(2) {
                sleep(self.drawn(millis(1)..millis(1_500))).await;
                guard.checkpoint().await
            } else {
                let work = self.drawn(millis(1)..secs(3));
                let work = async {
                    let ends = Instant::now() + work;
                    while Instant::now() < ends {
                        self.ledger.borrow().works(id);
                        sleep(millis(50)).await;
                    }
                };
                guard.keep_alive(work).await
            };
            self.ledger.borrow_mut().relies(id, guard.remaining());
            match held {
                Err(error) if error.is_lost() => {
                    let row = |key: &String| self.table.number(key, "fencingToken");
                    let is_lost = guard.tokens().iter().any(|(key, token)| row(key) > *token);
                    assert!(is_lost, "P3: nobody else was granted a lock of {:?}: {error}", guard.tokens());
                    return;
                }
                _ => {}
            }
        }
        // The guard is at its end, whether it is released or its holder is dead.
        self.ledger.borrow_mut().relies(id, Duration::ZERO);
        if !self.one_in(8) {
            // Whatever the response is, the lease frees the lock.
            let _ = guard.release().await;
        }
    }

    fn fault(&self) -> Fault {
        let kind = self.rng.borrow_mut().u32(..11);
        match kind {
            0 => Fault::RequestLost,
            1 => Fault::AnswerLost,
            2 => Fault::NeverAnswers,
            3 => Fault::BlackHole,
            4 | 5 => Fault::ArrivesLate(self.drawn(millis(10)..secs(4))),
            6 => Fault::Slow(self.drawn(millis(10)..secs(4))),
            7 => Fault::throttled(),
            8 => Fault::failure_after_apply(),
            9 if self.doubles => Fault::ArrivesTwice(self.drawn(millis(10)..secs(4))),
            _ => Fault::SlowBothWays(self.drawn(millis(1)..millis(700)), self.drawn(millis(1)..millis(700))),
        }
    }

    /// Lets requests fail, also a few in a row, until the rough time is over.
    async fn break_network(&self) {
        while Instant::now() < self.until {
            sleep(self.drawn(millis(200)..secs(4))).await;
            let some = self.rng.borrow_mut().usize(1..4);
            self.process.next((0..some).map(|_| self.fault()));
        }
        self.process.clear();
    }

    /// Runs the process, and freezes it now and then.
    async fn run(self: Rc<Self>, name: String) {
        let network = {
            let worker = self.clone();
            spawn_local(async move { worker.break_network().await })
        };
        let mut living = Box::pin(self.live(name));
        loop {
            let next = Instant::now() + self.drawn(millis(500)..secs(15));
            tokio::select! {
                () = &mut living => break,
                () = sleep_until(next), if next < self.until => {
                    let time = self.drawn(millis(10)..secs(6));
                    self.process.clock.freeze(time).await;
                    *self.frozen.borrow_mut() += time;
                }
            }
        }
        network.await.unwrap();
    }
}

/// Runs the schedule of a seed. Returns how many guards there were.
async fn schedule(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let table = Table::new();
    let ledger = Rc::new(RefCell::new(Ledger::default()));
    let until = Instant::now() + ROUGH;
    let doubles = rng.u32(..4) == 0;
    let workers: Vec<_> = (0..rng.usize(2..6))
        .map(|number| {
            let process = table.process();
            process.clock.jump_wall(rng.i64(-FURTHEST..FURTHEST));
            process.set_latency(millis(rng.u64(2..40)));
            let locks = process.locks("worker");
            let (table, ledger, rng) = (table.clone(), ledger.clone(), RefCell::new(rng.fork()));
            let worker = Worker { table, process, locks, ledger, rng, frozen: Rc::default(), doubles, until };
            spawn_local(Rc::new(worker).run(format!("worker-{number}")))
        })
        .collect();
    let looks = {
        let (table, ledger) = (table.clone(), ledger.clone());
        spawn_local(async move {
            loop {
                ledger.borrow_mut().look(&table);
                sleep(millis(100)).await;
            }
        })
    };
    for worker in workers {
        ends_within(secs(600), worker).await.unwrap();
    }
    looks.abort();
    let lease = between(&mut rng, millis(800)..MAX_LEASE);
    let turn = between(&mut rng, millis(5)..millis(1_500));
    calm(&table, turn, lease).await;
    ledger.borrow().grants
}

/// Nothing fails any more. Locks of the dead become free, and nobody waits for ever, also not behind a line.
async fn calm(table: &Table, turn: Duration, lease: Duration) {
    sleep(MAX_LEASE + secs(4)).await;
    let until = Instant::now() + turn * 16;
    let budget = move |process: &Process| -> Budget { process.budget(turn * 100 + secs(10)).reserve(secs(0)) };
    let busy: Vec<_> = (0..4)
        .map(|number| {
            let process = table.process();
            spawn_local(async move {
                let locks = process.locks("busy");
                while Instant::now() < until {
                    let acquire = locks.acquire(KEYS[1 + number % 2]).lease(secs(20)).within(&budget(&process));
                    let lock = acquire.in_turn().await.unwrap();
                    sleep(turn).await;
                    lock.release().await.unwrap();
                }
            })
        })
        .collect();
    sleep(turn * 6).await;
    let process = table.process();
    let locks = process.locks("last");
    let set = locks.acquire_all(KEYS).lease(lease).within(&budget(&process)).in_order();
    ends_within(turn * 20 + secs(6), set).await.unwrap().release().await.unwrap();
    for caller in busy {
        caller.await.unwrap();
    }
    let set = ends_within(secs(6), locks.acquire_all(KEYS).lease(lease).within(&budget(&process))).await.unwrap();
    set.release().await.unwrap();
}

/// Runs a seed on a thread and a clock of its own.
fn run(seed: u64) -> u64 {
    let run = move || {
        let _case = case(format!("LAMBDA_LOCK_SCHEDULE={seed}"));
        // What the kit draws follows from the seed too.
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, schedule(seed))
    };
    std::thread::Builder::new().name(format!("seed {seed}")).spawn(run).unwrap().join().unwrap()
}

#[test]
fn guards_of_single_locks_lines_sets_and_chains_keep_the_promises_under_random_schedules() {
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse::<u64>().unwrap());
    let (first, count) = (number("LAMBDA_LOCK_SCHEDULE"), number("LAMBDA_LOCK_SCHEDULES"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let seeds = first.unwrap_or(0)..first.unwrap_or(0) + count;
    let next = AtomicU64::new(seeds.start);
    let grants = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    grants.fetch_add(run(seed), Ordering::Relaxed);
                }
            });
        }
    });
    let grants = grants.into_inner();
    println!("{count} schedules, {grants} guards");
    assert!(grants > count, "nobody was granted anything");
}
