//! The lock clients of all languages next to each other, in one run on one emulator.

mod behind;
mod client;
mod cold_start;
mod contention;
mod machine;
mod pairs;
mod plots;
mod progress;
mod promises;
mod report;
mod results;
mod takeover;

use crate::Error;
use crate::compare::contention::Scene;
use crate::compare::machine::load;
use crate::compare::progress::Progress;
use crate::compare::results::Results;
use lambda_lock::LockClient;
use lambda_lock_local::LocalDynamoDb;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Settings of a run.
#[derive(clap::Args)]
pub(crate) struct Compare {
    /// Rounds of batches of acquire and release.
    #[arg(long, default_value_t = 30)]
    rounds: usize,
    /// Pairs of acquire and release in a batch.
    #[arg(long, default_value_t = 200)]
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
    /// Goes on with a run that was interrupted, with the same settings; what it has measured stays.
    #[arg(long)]
    resume: bool,
    /// Writes BENCHMARKS.md again from the raw data of the last run, and measures nothing.
    #[arg(long, conflicts_with_all = ["warm_up", "rounds", "pairs", "repeats", "contenders", "cold_starts", "resume"])]
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
    if !compare.only_report {
        measure(compare, &directory).await?;
    }
    let results: Results = serde_json::from_slice(&fs::read(directory.join("raw.json"))?)?;
    plots::latency(&results, &directory.join("latency.svg"))?;
    plots::contention(&results, &directory.join("contention.svg"))?;
    fs::write(output.join("BENCHMARKS.md"), report::markdown(&results))?;
    for promise in promises::of(&results).iter().filter(|promise| !promise.is_kept()) {
        println!("NOT KEPT: {}: {:.3}, at most {:.2}", promise.what, promise.ratio, promise.at_most);
    }
    println!("written: {}", output.join("BENCHMARKS.md").display());
    Ok(())
}

/// Measures what is missing, and keeps each part as soon as there is one.
async fn measure(compare: &Compare, directory: &Path) -> Result<(), Error> {
    let unfinished = directory.join("unfinished.json");
    let mut results = if compare.resume { read(&unfinished)? } else { Results::none(now()?) };
    results.sittings += 1;
    results.load.push(load());
    let kept = measure_missing(compare, &mut results, &unfinished).await;
    fs::write(&unfinished, serde_json::to_string(&results)? + "\n")?;
    kept.map_err(|error| format!("{error}\nWhat was measured is kept: go on with the same settings and --resume."))?;
    results.load.push(load());
    fs::write(directory.join("raw.json"), serde_json::to_string(&results)? + "\n")?;
    fs::remove_file(&unfinished)?;
    Ok(())
}

fn read(unfinished: &Path) -> Result<Results, Error> {
    let text = fs::read(unfinished)
        .map_err(|error| format!("there is no interrupted run to resume: {}: {error}", unfinished.display()))?;
    Ok(serde_json::from_slice(&text)?)
}

fn now() -> Result<String, Error> {
    let date = Command::new("date").args(["--utc", "+%-d %B %Y, %H:%M UTC"]).output()?.stdout;
    Ok(String::from_utf8_lossy(&date).trim().to_owned())
}

async fn measure_missing(compare: &Compare, results: &mut Results, unfinished: &Path) -> Result<(), Error> {
    let dynamodb = LocalDynamoDb::in_memory().await?;
    let endpoint = dynamodb.endpoint();
    create_tables(endpoint).await?;
    let repeats = usize::try_from(compare.repeats)?;
    let pairs = pairs::expected(compare.warm_up, compare.rounds, compare.pairs);
    let scenes = contention::plan(&compare.contenders, compare.repeats);
    let contention: Duration = scenes.iter().map(Scene::expected).sum();
    let cold_starts = cold_start::EXPECTED * compare.cold_starts;
    let mut progress = Progress::of(pairs + takeover::EXPECTED * compare.repeats + contention + cold_starts);
    let keep = |results: &Results| fs::write(unfinished, serde_json::to_string(results)? + "\n").map_err(Error::from);

    if results.batches.is_empty() {
        results.wire = pairs::wire(endpoint).await?;
        results.batches = pairs::batches(endpoint, compare.warm_up, compare.rounds, compare.pairs).await?;
        results.load.push(load());
        keep(results)?;
    }
    progress.did(pairs, "acquire and release");

    for repeat in 0..repeats {
        if results.takeovers.len() <= repeat * takeover::OF_A_REPEAT {
            results.takeovers.extend(takeover::measure(endpoint, repeat).await?);
            keep(results)?;
        }
        progress.did(takeover::EXPECTED, &format!("takeovers: {} of {repeats}", repeat + 1));
    }
    results.load.push(load());

    let mut played: Vec<Scene> = Vec::new();
    for scene in scenes {
        let repeat = played.iter().filter(|before| **before == scene).count();
        played.push(scene);
        if results.times(scene) <= repeat {
            results.contention.push(contention::measure(endpoint, scene, repeat).await?);
            keep(results)?;
        }
        progress.did(scene.expected(), &scene.to_string());
    }
    results.load.push(load());

    // Last, because they are built first, which can fail.
    if compare.cold_starts > 0 && results.cold_starts.is_none() {
        println!("building the functions whose cold starts are measured, which takes minutes of its own");
        results.cold_starts = Some(cold_start::measure(compare.cold_starts).await?);
    }
    Ok(())
}

async fn create_tables(endpoint: &str) -> Result<(), Error> {
    let dynamodb = lambda_lock_local::client(endpoint);
    LockClient::builder(dynamodb.clone(), crate::TABLE).build()?.create_table().await?;
    let python = LockClient::builder(dynamodb, client::PYTHON_TABLE);
    python.key_attribute("lock_key").sort_key_attribute("sort_key").build()?.create_table().await?;
    Ok(())
}
