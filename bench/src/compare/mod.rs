//! Compares the lock clients of all languages in one run on one emulator.

mod behind;
mod client;
mod cold_start;
mod contention;
mod drivers;
mod machine;
mod pairs;
mod plots;
mod progress;
mod promises;
mod report;
mod results;
mod run;
mod takeover;
mod unfinished;

use crate::Error;
use crate::compare::machine::load;
use crate::compare::results::Results;
use crate::compare::run::Settings;
use crate::compare::unfinished::Unfinished;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SETTINGS: [&str; 7] = ["processes", "rounds", "pairs", "warm_up", "repeats", "contenders", "cold_starts"];

/// The options of the command.
#[derive(clap::Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    settings: Settings,
    /// Continues an interrupted run with its settings, and keeps what it has measured.
    #[arg(long, conflicts_with_all = SETTINGS)]
    resume: bool,
    /// Writes BENCHMARKS.md and the plots again from the raw data of the last run, without measuring.
    #[arg(long, conflicts_with_all = SETTINGS, conflicts_with = "resume")]
    only_report: bool,
    /// The directory for BENCHMARKS.md, and for the plots and raw data in bench/results. Default: the project itself.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Measures all lock clients, and writes the report.
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
        println!("PROMISE NOT KEPT: {}: {:.3}, at most {:.2}", promise.what, promise.ratio, promise.at_most);
    }
    println!("written: {}", output.join("BENCHMARKS.md").display());
    Ok(())
}

async fn measure(compare: &Compare, directory: &Path) -> Result<(), Error> {
    let mut run = if compare.resume {
        Unfinished::interrupted(directory)?
    } else {
        Unfinished::new(directory, compare.settings.clone(), Results::none(now()?))
    };
    run.results.sittings += 1;
    run.results.load.push(load());
    match run::measure(&mut run).await {
        Err(error) if !run.results.batches.is_empty() => {
            return Err(format!("{error} (the measurements are kept: continue with `compare --resume`)").into());
        }
        measured => measured?,
    }
    run.results.load.push(load());
    run.finish(&directory.join("raw.json"))
}

fn now() -> Result<String, Error> {
    let date = Command::new("date").args(["--utc", "+%-d %B %Y, %H:%M UTC"]).output()?.stdout;
    Ok(String::from_utf8_lossy(&date).trim().to_owned())
}
