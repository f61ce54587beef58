//! Waiting in line: what a turn costs, how long a hand-over takes, how many are passed, and for how long the lock is free while
//! somebody waits; also where some of those who wait give up or die.
//!
//! Time is tokio's paused time: a run takes seconds, and what else the machine does changes nothing. A request takes up to 5 ms.

use crate::Error;
use crate::tickets::{Tickets, noted};
use crate::turns::{HandOver, Ticket, Turn, hand_overs, passed_in_line};
use aws_sdk_dynamodb::Client;
use clap::Args;
use fastrand::Rng;
use lambda_lock::LockClient;
use lambda_lock_testkit::{Process, Table};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, pause, sleep, timeout};

/// Of a request, and of its response.
const WAY: Duration = Duration::from_micros(2_500);
/// Long enough that no lease ends.
const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(3_600);

/// Measures waiting in line.
#[derive(Args, Clone, Debug)]
pub(crate) struct Line {
    /// Only these numbers of callers. They all come at once.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = [2, 8, 32, 100])]
    callers: Vec<usize>,
    /// Only work of these lengths, in milliseconds.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = [0, 50, 500, 5_000])]
    work: Vec<u64>,
    /// Only these shares of callers that leave, in percent: half of them give up, and half of them die.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = [0, 20, 60])]
    leave: Vec<u32>,
    /// The number of turns of each caller: 1 for bursts, more for loops.
    #[arg(long, default_value_t = 1)]
    turns: usize,
    /// The work lasts so long on average, and is exponentially distributed.
    #[arg(long)]
    varies: bool,
    /// All callers wait in turn.
    #[arg(long)]
    in_turn: bool,
    /// Repetitions of each scene, with other random numbers.
    #[arg(long, default_value_t = 5)]
    repeats: u64,
}

/// How a caller ends its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    GivesUpAfter(Duration),
    DiesAfter(Duration),
}

/// What all repetitions of a scene have shown.
#[derive(Default)]
struct Seen {
    turns: usize,
    reads: usize,
    writes: usize,
    hand_overs: Vec<Duration>,
    passed: usize,
    took: Duration,
}

impl Seen {
    fn add(&mut self, mut turns: Vec<Turn>) {
        self.turns += turns.len();
        self.hand_overs.extend(hand_overs(&mut turns));
        self.passed += passed_in_line(&mut turns);
        self.took += turns.iter().map(|turn| turn.released).max().unwrap_or_default();
    }

    fn print(&self, of: &str) {
        let turns = self.turns.max(1) as f64;
        let (writes, reads) = (self.writes as f64 / turns, self.reads as f64 / turns);
        let hand_over = HandOver::of(&self.hand_overs);
        let free: Duration = self.hand_overs.iter().sum();
        println!(
            "| {of} | {:.0} | {writes:.1} | {reads:.1} | {:.0} | {:.0} | {} of {} | {:.0} |",
            writes * 5.0 + reads,
            hand_over.median,
            hand_over.most,
            self.passed,
            self.turns,
            100.0 * free.as_secs_f64() / self.took.as_secs_f64().max(f64::MIN_POSITIVE),
        );
    }
}

pub(crate) async fn run(line: &Line) -> Result<(), Error> {
    pause();
    println!(
        "| callers, work in ms, % who leave | price of a turn | writes | reads | hand-over, median in ms | 99 % | passed | free, % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|"
    );
    for &callers in &line.callers {
        for &work in &line.work {
            for &leave in &line.leave {
                let mut seen = Seen::default();
                for repeat in 0..line.repeats {
                    scene(line, callers, Duration::from_millis(work), leave, repeat, &mut seen).await?;
                }
                seen.print(&format!("{callers}, {work}, {leave}"));
            }
        }
    }
    Ok(())
}

async fn scene(
    line: &Line,
    callers: usize,
    work: Duration,
    leave: u32,
    repeat: u64,
    seen: &mut Seen,
) -> Result<(), Error> {
    fastrand::seed(repeat);
    let (table, began) = (Table::new(), Instant::now());
    let mut rng = Rng::with_seed(repeat);
    let (mut all, mut processes) = (JoinSet::new(), Vec::new());
    for _ in 0..callers {
        let process = table.process();
        process.set_latency(WAY);
        // While its turn may come: until all others have had theirs.
        let after = (work + WAY * 4).mul_f64(rng.f64() * callers as f64);
        let patience = match rng.u32(..200) {
            chance if chance < leave => Patience::GivesUpAfter(after),
            chance if chance < leave * 2 => Patience::DiesAfter(after),
            _ => Patience::Endless,
        };
        let caller = Caller { process: process.clone(), work, patience, rng: rng.fork(), began, line: line.clone() };
        processes.push(process);
        all.spawn(caller.turns());
    }
    let turns: Result<Vec<_>, _> = all.join_all().await.into_iter().collect();
    seen.add(turns?.into_iter().flatten().collect());
    for process in processes {
        let (writes, reads) = process.take_writes_and_reads();
        (seen.writes, seen.reads) = (seen.writes + writes, seen.reads + reads);
    }
    Ok(())
}

struct Caller {
    process: Process,
    work: Duration,
    patience: Patience,
    rng: Rng,
    began: Instant,
    line: Line,
}

impl Caller {
    async fn turns(mut self) -> Result<Vec<Turn>, lambda_lock::Error> {
        let config = self.process.dynamodb().config().to_builder().interceptor(Tickets).build();
        let locks =
            LockClient::builder(Client::from_conf(config), "locks").clock(self.process.clock.shared()).build()?;
        let mut turns = Vec::with_capacity(self.line.turns);
        for _ in 0..self.line.turns {
            let came = self.began.elapsed();
            let wait = if let Patience::GivesUpAfter(after) = self.patience { after } else { WAIT };
            let budget = self.process.budget(wait).reserve(Duration::ZERO);
            let acquire = locks.acquire("k").within(&budget).lease(LEASE);
            let acquire = if self.line.in_turn { acquire.in_turn() } else { acquire };
            let acquire = noted(acquire.into_future());
            let (lock, ticket) = match self.patience {
                Patience::DiesAfter(after) => match timeout(after, acquire).await {
                    Ok(acquired) => acquired,
                    Err(_) => return Ok(turns),
                },
                Patience::Endless | Patience::GivesUpAfter(_) => acquire.await,
            };
            let lock = match lock {
                Err(error) if matches!(self.patience, Patience::GivesUpAfter(_)) && error.refusal().is_some() => {
                    return Ok(turns);
                }
                lock => lock?,
            };
            let ticket = ticket.map(|(number, given)| Ticket { number, given: given.duration_since(self.began) });
            let granted = self.began.elapsed();
            sleep(if self.line.varies { exponential(self.work, &mut self.rng) } else { self.work }).await;
            let released = self.began.elapsed();
            lock.release().await?;
            turns.push(Turn { came, granted, released, ticket });
        }
        Ok(turns)
    }
}

fn exponential(mean: Duration, rng: &mut Rng) -> Duration {
    mean.mul_f64(-(1.0 - rng.f64()).ln())
}
