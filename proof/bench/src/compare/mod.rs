//! Compares the lock clients of all languages in one run on one emulator.

mod behind;
mod client;
mod cold_start;
mod contention;
mod drivers;
mod machine;
mod pairs;
mod promises;
mod report;
mod results;
mod run;
mod takeover;

use crate::Error;
use crate::compare::results::Results;
use crate::compare::run::Settings;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SETTINGS: [&str; 7] = ["processes", "rounds", "pairs", "warm_up", "repeats", "contenders", "cold_starts"];

/// The options of the command.
#[derive(clap::Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    settings: Settings,
    /// Writes BENCHMARKS.md again from the raw data of the last run, without measuring.
    #[arg(long, conflicts_with_all = SETTINGS)]
    only_report: bool,
    /// The directory for BENCHMARKS.md, and for the raw data in proof/bench/results. Default: the project itself.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Measures all lock clients, and writes the report.
pub(crate) async fn run(compare: &Compare) -> Result<(), Error> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = compare.output.clone().unwrap_or(project);
    let raw = output.join("proof/bench/results/raw.json");
    if !compare.only_report {
        fs::create_dir_all(output.join("proof/bench/results"))?;
        let results = run::measure(&compare.settings, now()?).await?;
        fs::write(&raw, serde_json::to_string(&results)? + "\n")?;
    }
    let results: Results = serde_json::from_slice(&fs::read(raw)?)?;
    fs::write(output.join("BENCHMARKS.md"), report::markdown(&results))?;
    for promise in promises::of(&results).iter().filter(|promise| !promise.is_kept()) {
        println!("PROMISE NOT KEPT: {}: {:.3}, at most {:.2}", promise.what, promise.ratio, promise.at_most);
    }
    println!("written: {}", output.join("BENCHMARKS.md").display());
    Ok(())
}

fn now() -> Result<String, Error> {
    let date = Command::new("date").args(["--utc", "+%-d %B %Y, %H:%M UTC"]).output()?.stdout;
    Ok(String::from_utf8_lossy(&date).trim().to_owned())
}
