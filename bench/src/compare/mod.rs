//! The lock clients of all languages next to each other, in one run on one emulator.

mod client;
mod cold_start;
mod contention;
mod machine;
mod pairs;
mod plots;
mod promises;
mod report;
mod results;
mod takeover;

use crate::Error;
use crate::compare::machine::{Machine, load};
use crate::compare::results::Results;
use lambda_lock::LockClient;
use lambda_lock_local::LocalDynamoDb;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Settings of a run.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Rounds of batches of acquire and release.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Pairs of acquire and release in a batch.
    #[arg(long, default_value_t = 100)]
    pairs: u32,
    /// Pairs that each client runs before any that count: Java's compiler needs them.
    #[arg(long, default_value_t = 2_000)]
    warm_up: u32,
    /// How often takeovers and contention are repeated.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// Only these numbers of contenders.
    #[arg(long, value_delimiter = ',', default_values_t = contention::CONTENDERS)]
    contenders: Vec<u32>,
    /// Cold starts of each function; 0: none. Needs minutes to build them first.
    #[arg(long, default_value_t = 100)]
    cold_starts: u32,
    /// Writes BENCHMARKS.md again from the raw data of the last run, and measures nothing.
    #[arg(long, conflicts_with_all = ["warm_up", "rounds", "pairs", "repeats", "contenders", "cold_starts", "output"])]
    only_report: bool,
    /// Where BENCHMARKS.md, the plots and the raw data go. Default: the project itself.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// What one lock client after the other, and all of them together, take.
pub(crate) async fn run(compare: &Compare) -> Result<(), Error> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = compare.output.clone().unwrap_or(project);
    let directory = output.join("bench/results");
    fs::create_dir_all(&directory)?;
    let raw = directory.join("raw.json");
    let results = if compare.only_report {
        serde_json::from_slice(&fs::read(&raw)?)?
    } else {
        let mut results = measure(compare).await?;
        // The cold starts are built first, which takes minutes and can fail: nothing is lost then.
        fs::write(&raw, serde_json::to_string(&results)? + "\n")?;
        if compare.cold_starts > 0 {
            results.cold_starts = Some(cold_start::measure(compare.cold_starts).await?);
            results.load.push(load());
            fs::write(&raw, serde_json::to_string(&results)? + "\n")?;
        }
        results
    };
    plots::latency(&results, &directory.join("latency.svg"))?;
    plots::contention(&results, &directory.join("contention.svg"))?;
    fs::write(output.join("BENCHMARKS.md"), report::markdown(&results))?;
    for promise in promises::of(&results).iter().filter(|promise| !promise.is_kept()) {
        say(&format!("NOT KEPT: {}: {:.3}, at most {:.2}", promise.what, promise.ratio, promise.at_most));
    }
    say(&format!("written: {}", output.join("BENCHMARKS.md").display()));
    Ok(())
}

async fn measure(compare: &Compare) -> Result<Results, Error> {
    let dynamodb = LocalDynamoDb::in_memory().await?;
    let endpoint = dynamodb.endpoint();
    create_tables(endpoint).await?;
    let mut loads = vec![load()];
    let wire = pairs::wire(endpoint).await?;
    let batches = pairs::batches(endpoint, compare.warm_up, compare.rounds, compare.pairs, say).await?;
    loads.push(load());
    let takeovers = takeover::measure(endpoint, compare.repeats, say).await?;
    loads.push(load());
    let contention = contention::measure(endpoint, &compare.contenders, compare.repeats, say).await?;
    loads.push(load());
    let date = Command::new("date").args(["--utc", "+%-d %B %Y, %H:%M UTC"]).output()?.stdout;
    let date = String::from_utf8_lossy(&date).trim().to_owned();
    Ok(Results { date, machine: Machine::here(), load: loads, wire, batches, takeovers, contention, cold_starts: None })
}

async fn create_tables(endpoint: &str) -> Result<(), Error> {
    let dynamodb = lambda_lock_local::client(endpoint);
    LockClient::builder(dynamodb.clone(), crate::TABLE).build()?.create_table().await?;
    let python = LockClient::builder(dynamodb, client::PYTHON_TABLE);
    python.key_attribute("lock_key").sort_key_attribute("sort_key").build()?.create_table().await?;
    Ok(())
}

fn say(line: &str) {
    println!("{line}");
}
