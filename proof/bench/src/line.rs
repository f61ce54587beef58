//! Waiting in line on the embedded server: what a turn costs, how long a hand-over takes, and how often a caller is passed by
//! those who came later; without a line, with it, and with callers that wait in line from the beginning.
//!
//! A proxy makes each request take some milliseconds, as one within a Region does.

use crate::Error;
use crate::tickets::{Tickets, noted};
use crate::turns::{HandOver, Ticket, Turn, hand_overs, most_passed, most_passed_in_line};
use clap::Args;
use fastrand::Rng;
use lambda_lock::{Budget, LockClient};
use lambda_lock_local::authorize::{AuthorizingProxy, Fate, Grant, Role};
use lambda_lock_local::{LocalDynamoDb, client, config};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::sleep;

const LOCKS: &str = "locks";
/// How long a request takes: from, to, in microseconds.
const WAY: std::ops::Range<u64> = 1_000..5_000;
/// Long enough that no lease ends, and no caller gives up.
const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(1_800);
/// In the first bursts on a key, nothing is known of how long holders hold it.
const BURSTS: usize = 3;

/// Measures waiting in line.
#[derive(Args, Clone, Debug)]
pub(crate) struct Line {
    /// Only these numbers of callers.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = [8, 32])]
    callers: Vec<usize>,
    /// Only work of these lengths, in milliseconds.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = [0, 50, 500])]
    work: Vec<u64>,
    /// Only with so many turns of each caller: 1 for bursts, more for loops.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = [1, 10])]
    turns: Vec<usize>,
    /// Repetitions of each scene.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
}

/// How callers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    OutOfTurn,
    Default,
    InTurn,
}

const ALL: [Waiting; 3] = [Waiting::OutOfTurn, Waiting::Default, Waiting::InTurn];

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfTurn => "out of turn",
            Self::Default => "default",
            Self::InTurn => "in turn",
        })
    }
}

/// How long a caller works under its lock.
#[derive(Clone, Copy, Debug)]
struct Work {
    millis: u64,
    varies: bool,
}

impl Work {
    fn drawn(self, rng: &mut Rng) -> Duration {
        let mean = Duration::from_millis(self.millis);
        if self.varies { mean.mul_f64(-(1.0 - rng.f64()).ln()) } else { mean }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms{}", self.millis, if self.varies { " on average" } else { "" })
    }
}

/// A lock table, and the way to it.
struct Stage {
    _dynamodb: LocalDynamoDb,
    proxy: AuthorizingProxy,
    reads: Arc<AtomicU64>,
    writes: Arc<AtomicU64>,
}

impl Stage {
    async fn new() -> Result<Self, Error> {
        let dynamodb = LocalDynamoDb::in_memory().await?;
        LockClient::builder(client(dynamodb.endpoint()), LOCKS).build()?.create_table().await?;
        let resource = format!("arn:aws:dynamodb:local:123456789012:table/{LOCKS}");
        let grant = |action: &str| Grant::new(format!("dynamodb:{action}"), resource.clone());
        let role: Role = ["GetItem", "UpdateItem"].map(grant).into();
        let proxy = AuthorizingProxy::start(dynamodb.endpoint(), BTreeMap::from([("local".to_owned(), role)])).await?;
        let (reads, writes) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let counters = (Arc::clone(&reads), Arc::clone(&writes));
        proxy.decide(move |call| {
            let is_write = call.needs.iter().any(|need| need.action == "dynamodb:UpdateItem");
            (if is_write { &counters.1 } else { &counters.0 }).fetch_add(1, Ordering::Relaxed);
            Fate::AnsweredAfter(Duration::from_micros(fastrand::u64(WAY)))
        });
        Ok(Self { _dynamodb: dynamodb, proxy, reads, writes })
    }
}

/// What some bursts or loops have shown.
#[derive(Default)]
struct Seen {
    turns: usize,
    reads: u64,
    writes: u64,
    hand_overs: Vec<Duration>,
    most_passed: usize,
    most_passed_in_line: Option<usize>,
    took: Duration,
}

impl Seen {
    fn add(&mut self, mut turns: Vec<Turn>, stage: &Stage) {
        self.turns += turns.len();
        self.reads += stage.reads.swap(0, Ordering::Relaxed);
        self.writes += stage.writes.swap(0, Ordering::Relaxed);
        self.hand_overs.extend(hand_overs(&mut turns));
        self.most_passed = self.most_passed.max(most_passed(&mut turns));
        self.most_passed_in_line = self.most_passed_in_line.max(most_passed_in_line(&mut turns));
        let first = turns.iter().map(|turn| turn.came).min();
        self.took += first.and_then(|first| Some(turns.last()?.released - first)).unwrap_or_default();
    }

    fn print(&self, of: &str) {
        let turns = self.turns as f64;
        let [requests, writes, reads] =
            [self.reads + self.writes, self.writes, self.reads].map(|count| count as f64 / turns);
        let hand_over = HandOver::of(&self.hand_overs);
        println!(
            "| {of} | {requests:.1} | {writes:.1} | {reads:.1} | {:.0} | {:.0} | {} | {} | {:.1} |",
            hand_over.median,
            hand_over.most,
            self.most_passed,
            self.most_passed_in_line.map_or("–".to_owned(), |most| most.to_string()),
            self.took.as_secs_f64(),
        );
    }
}

const HEAD: &str =
    "requests of a turn | writes | reads | hand-over, median in ms | 99 % | most often passed | in line | seconds |
|---|---:|---:|---:|---:|---:|---:|---:|---:|";

pub(crate) async fn run(line: &Line) -> Result<(), Error> {
    for &rounds in &line.turns {
        println!(
            "\n{}\n",
            if rounds == 1 {
                "Bursts: all callers come at once, for one turn each"
            } else {
                "Loops of some turns each"
            }
        );
        println!("| callers, work, how they wait | {HEAD}");
        for &callers in &line.callers {
            for &millis in &line.work {
                for varies in [false, true].into_iter().take(if millis == 0 { 1 } else { 2 }) {
                    for waiting in ALL {
                        scene(line, callers, rounds, Work { millis, varies }, waiting).await?;
                    }
                }
            }
        }
    }
    Ok(())
}

async fn scene(line: &Line, callers: usize, rounds: usize, work: Work, waiting: Waiting) -> Result<(), Error> {
    let stage = Stage::new().await?;
    let locks = LockClient::builder_from_conf(config(stage.proxy.endpoint()).interceptor(Tickets), LOCKS).build()?;
    locks.acquire("warm").within(&Budget::lasting(WAIT)).await?.release().await?;
    let (mut first, mut later) = (Seen::default(), Seen::default());
    for repeat in 0..line.repeats {
        let began = Instant::now();
        for burst in 0..if rounds == 1 { BURSTS } else { 1 } {
            stage.reads.swap(0, Ordering::Relaxed);
            stage.writes.swap(0, Ordering::Relaxed);
            let mut all = JoinSet::new();
            for caller in 0..callers {
                let (locks, key) = (locks.clone(), format!("k{repeat}"));
                let rng = Rng::with_seed((caller + 1_000 * burst) as u64);
                all.spawn(turns(locks, key, rounds, work, waiting, rng, began));
            }
            let turns: Result<Vec<_>, _> = all.join_all().await.into_iter().collect();
            let seen = if burst == 0 { &mut first } else { &mut later };
            seen.add(turns?.into_iter().flatten().collect(), &stage);
        }
    }
    if waiting == Waiting::InTurn && callers > 1 && first.most_passed_in_line.is_none() {
        return Err("nobody was given a ticket, or its request has changed (`tickets.rs`)".into());
    }
    let of = format!("{callers}, {work}, {waiting}");
    first.print(&of);
    if rounds == 1 && waiting != Waiting::OutOfTurn {
        later.print(&format!("{of}, later bursts on the key"));
    }
    Ok(())
}

async fn turns(
    locks: LockClient,
    key: String,
    rounds: usize,
    work: Work,
    waiting: Waiting,
    mut rng: Rng,
    began: Instant,
) -> Result<Vec<Turn>, lambda_lock::Error> {
    let mut turns = Vec::with_capacity(rounds);
    let budget = Budget::lasting(WAIT).reserve(Duration::ZERO);
    for _ in 0..rounds {
        let came = began.elapsed();
        let acquire = locks.acquire(&key).within(&budget).lease(LEASE);
        let acquire = match waiting {
            Waiting::OutOfTurn => acquire.out_of_turn(),
            Waiting::Default => acquire,
            Waiting::InTurn => acquire.in_turn(),
        };
        let (lock, ticket) = noted(acquire.into_future()).await;
        let lock = lock?;
        let ticket = ticket.map(|(number, given)| Ticket { number, given: given.duration_since(began) });
        let granted = began.elapsed();
        sleep(work.drawn(&mut rng)).await;
        let released = began.elapsed();
        lock.release().await?;
        turns.push(Turn { came, granted, released, ticket });
    }
    Ok(turns)
}
