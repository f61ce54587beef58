//! Measures the CPU time of this crate, and compares it with the same requests written by hand on the SDK.
//!
//! Both sides use the same SDK client, with a connector that answers immediately from memory. There is no network, no
//! server and no waiting. The CPU time of this thread counts.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock itself")]
#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod compare;
mod constant;
mod line;
mod ours;
mod sets;
mod statistics;
mod tickets;
mod turns;

use crate::ours::Ours;
use crate::statistics::Comparison;
use clap::{Parser, Subcommand, ValueEnum};
use cpu_time::ThreadTime;
use lambda_lock_bench_driver::{ByHand, Error};
use serde_json::json;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

const TABLE: &str = "locks";
const KEY: &str = "customer-7";
const OWNER: &str = "bench-1";

/// Measures the cost of lambda-lock in comparison with other lock clients and with the same requests written by hand.
#[derive(Parser)]
#[command(name = "lambda-lock-bench")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Acquires and releases a free lock: two requests.
    Pair(Pair),
    /// Measures how long sets of locks and permits wait, by their size and by the load.
    Sets(sets::Sets),
    /// Measures waiting in line: requests, hand-overs and order.
    Line(line::Line),
    /// Compares all lock clients: Java, Go, Python, ours, and the bare SDK.
    Compare(compare::Compare),
}

/// The pair by hand.
async fn by_hand(by_hand: &ByHand) -> Result<(), Error> {
    let held = by_hand.acquire(KEY).await?;
    black_box((held.fencing_token(), held.until()));
    by_hand.release(held).await
}

#[derive(clap::Args)]
struct Pair {
    /// Batches of each side, in the order ours, by hand, by hand, ours.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..))]
    batches: u32,
    /// Pairs of requests in a batch.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Runs one batch of one side without measuring, for callgrind and other profilers.
    #[arg(long)]
    only: Option<Side>,
    /// Fails if the ratio of the medians is larger than this.
    #[arg(long)]
    at_most: Option<f64>,
    /// Prints JSON.
    #[arg(long, conflicts_with = "only")]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Ours,
    ByHand,
}

struct Sides {
    ours: Ours,
    by_hand: ByHand,
}

impl Sides {
    fn new() -> Result<Self, Error> {
        let dynamodb = constant::client();
        Ok(Self { ours: Ours::new(dynamodb.clone())?, by_hand: ByHand::new(dynamodb, TABLE, OWNER) })
    }

    async fn batch(&self, side: Side, pairs: u32) -> Result<Duration, Error> {
        let started = ThreadTime::now();
        match side {
            Side::Ours => {
                for _ in 0..pairs {
                    self.ours.pair().await?;
                }
            }
            Side::ByHand => {
                for _ in 0..pairs {
                    by_hand(&self.by_hand).await?;
                }
            }
        }
        Ok(started.elapsed())
    }

    /// Interleaved, so that a slow phase of the machine affects both sides.
    async fn compare(&self, pair: &Pair) -> Result<Comparison, Error> {
        for side in [Side::Ours, Side::ByHand] {
            self.batch(side, pair.pairs.min(1000)).await?;
        }
        let mut comparison = Comparison::default();
        for batch in 0..pair.batches {
            let ours_first = batch % 2 == 0;
            let order = if ours_first { [Side::Ours, Side::ByHand] } else { [Side::ByHand, Side::Ours] };
            let [first, second] = order;
            let first = self.batch(first, pair.pairs).await? / pair.pairs;
            let second = self.batch(second, pair.pairs).await? / pair.pairs;
            let (ours, by_hand) = if ours_first { (first, second) } else { (second, first) };
            comparison.add(ours, by_hand);
        }
        Ok(comparison)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Error> {
    match Arguments::parse().what {
        What::Pair(pair) => compare_pair(&pair).await,
        What::Sets(sets) => sets::run(&sets).await.map(|()| ExitCode::SUCCESS),
        What::Line(line) => line::run(&line).await.map(|()| ExitCode::SUCCESS),
        What::Compare(compare) => compare::run(&compare).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn compare_pair(pair: &Pair) -> Result<ExitCode, Error> {
    let sides = Sides::new()?;
    if let Some(side) = pair.only {
        sides.batch(side, pair.pairs).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let comparison = sides.compare(pair).await?;
    let (ours, by_hand) = (micros(comparison.ours()), micros(comparison.by_hand()));
    let (ratio, (low, high)) = (comparison.ratio(), comparison.interval());
    if pair.json {
        let figures = json!({
            "what": "CPU per acquire and release, no network",
            "batches": pair.batches,
            "pairsPerBatch": pair.pairs,
            "oursMicros": ours,
            "byHandMicros": by_hand,
            "ratio": ratio,
            "ratioInterval95": [low, high],
        });
        println!("{figures:#}");
    } else {
        println!(
            "CPU per acquire and release, no network: medians of {} batches of {} pairs",
            pair.batches, pair.pairs
        );
        println!("  lambda-lock        {ours:8.2} µs");
        println!("  by hand on the SDK {by_hand:8.2} µs");
        println!("  ratio              {ratio:8.3}    (95 % interval {low:.3} to {high:.3})");
    }
    if let Some(limit) = pair.at_most.filter(|limit| ratio > *limit) {
        return Err(format!("the ratio {ratio:.3} is larger than {limit}").into());
    }
    Ok(ExitCode::SUCCESS)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a request that do not depend on time or random numbers.
    fn shape(bodies: &[serde_json::Value]) -> Vec<serde_json::Value> {
        let mut bodies = bodies.to_vec();
        for body in &mut bodies {
            let values = body["ExpressionAttributeValues"].as_object_mut().unwrap();
            for (name, value) in values {
                let (kind, text) = value.as_object_mut().unwrap().iter_mut().next().unwrap();
                let text = text.as_str().unwrap();
                if name == ":owner" {
                    // The owner of our requests ends with random digits for each acquire.
                    assert!(text.starts_with(OWNER), "{text}");
                    *value = json!(kind.as_str());
                } else if ![":one", ":ours", ":released", ":token"].contains(&name.as_str()) {
                    *value = json!({ kind.as_str(): text.len() });
                }
            }
        }
        bodies
    }

    #[tokio::test]
    async fn both_sides_send_the_same_requests() {
        let (dynamodb, sent) = constant::recording_client();
        Ours::new(dynamodb.clone()).unwrap().pair().await.unwrap();
        let ours: Vec<_> = std::mem::take(&mut *sent.lock().unwrap());
        by_hand(&ByHand::new(dynamodb, TABLE, OWNER)).await.unwrap();
        let theirs: Vec<_> = std::mem::take(&mut *sent.lock().unwrap());
        assert_eq!(ours.len(), 2);
        assert_eq!(shape(&ours), shape(&theirs));
    }

    #[tokio::test]
    async fn a_comparison_runs_and_its_interval_holds_the_ratio() {
        let pair = Pair { batches: 4, pairs: 2, only: None, at_most: None, json: false };
        let comparison = Sides::new().unwrap().compare(&pair).await.unwrap();
        let (low, high) = comparison.interval();
        assert!(low <= comparison.ratio() && comparison.ratio() <= high);
        assert!(!comparison.ours().is_zero() && !comparison.by_hand().is_zero());
    }
}
