//! `cargo sim`: runs many seeds, replays one seed, or checks that a known mistake is noticed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command line")]

use anyhow::{Context, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use lambda_lock_protocol::mistakes::{self, Mistake};
use lambda_lock_simulation::model::{Asking, Bounds, check};
use lambda_lock_simulation::{Batch, FIRST_CROWD, Invariant, OF_SETS, Options, Summary, run, survey, table};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::available_parallelism;

/// In this many seeds, every event that should happen sometimes does happen.
const ENOUGH: u64 = 15_000;

/// Simulates callers of the lock under faults, and fails when a promise is broken.
///
/// Each seed is one run with its own processes, clocks, network and lock table, and with faults in all of them. The
/// same seed always runs the same.
#[derive(Parser, Debug)]
#[command(name = "cargo sim")]
struct Arguments {
    /// The number of seeds.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    seeds: u64,

    /// The first seed.
    #[arg(long, default_value_t = 0, value_name = "S")]
    base: u64,

    /// Runs seeds with a crowd instead: up to 16 callers that all wait in line. They are larger by 2⁴⁷.
    #[arg(long, conflicts_with_all = ["seed", "survey", "model"])]
    crowd: bool,

    /// Runs only this seed, and prints everything that happens.
    #[arg(long, value_name = "X", conflicts_with_all = ["seeds", "base"])]
    seed: Option<u64>,

    /// With --seed: uses the real SDK, and compares with a DynamoDB engine.
    #[arg(long, requires = "seed")]
    sdk: bool,

    /// Switches a known mistake on, and stops when it is noticed. `--mistake list` prints all names.
    #[arg(long, value_name = "NAME")]
    mistake: Option<String>,

    /// Measures how many seeds it takes to notice each known mistake, with --seeds as the limit, and writes the table
    /// for the tests to this file. With --mistake, only the line of that mistake is updated.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "record"])]
    survey: Option<PathBuf>,

    /// Checks every state of three small models instead: two callers of one lock, a caller of two locks together beside
    /// a caller of one, and two callers in line behind a holder. A lease has two ticks. It takes one thread, and 8 GB of memory.
    #[arg(long, conflicts_with_all = ["seed", "survey", "record", "threads"])]
    model: bool,

    /// The number of threads. Default: one for each core.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Writes the summary to this file, with the commit and the machine.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl Arguments {
    fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.mistake.as_deref() == Some("list") {
        for mistake in mistakes::ALL {
            println!("{mistake:?}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mistake = arguments.mistake.as_deref().map(mistake).transpose()?;
    if arguments.model {
        return modelled(mistake);
    }
    if let Some(file) = &arguments.survey {
        return surveyed(&arguments, mistake, file);
    }
    match arguments.seed {
        Some(seed) => Ok(replay(seed, arguments.sdk, mistake)),
        None => batch(&arguments, mistake),
    }
}

fn mistake(name: &str) -> anyhow::Result<Mistake> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let found = mistakes::ALL.iter().copied().find(|mistake| plain(&format!("{mistake:?}")) == plain(name));
    found.with_context(|| format!("unknown mistake {name}: `--mistake list` prints all names"))
}

fn surveyed(arguments: &Arguments, only: Option<Mistake>, file: &Path) -> anyhow::Result<ExitCode> {
    let wanted: Vec<_> = mistakes::ALL
        .iter()
        .filter(|mistake| only.is_none_or(|only| only == **mistake))
        .filter(|mistake| !mistakes::ONLY_FOR_THE_MODEL.contains(mistake))
        .collect();
    // Mistakes that are not surveyed, or were not noticed, keep their lines.
    let earlier = if file.exists() { std::fs::read_to_string(file)? } else { String::new() };
    let bar = ProgressBar::new(wanted.len() as u64);
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}")?);
    let mut known = Vec::new();
    let mut unnoticed = Vec::new();
    for mistake in wanted {
        bar.set_message(format!("{mistake:?}"));
        match survey(*mistake, arguments.seeds, arguments.threads()) {
            Some(found) => known.push(found),
            None => unnoticed.push(format!("{mistake:?}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let table = table(&known, &earlier);
    std::fs::write(file, &table).with_context(|| format!("{} cannot be written", file.display()))?;
    println!("{table}");
    if unnoticed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("not noticed in {} seeds, so their lines were not changed: {}", arguments.seeds, unnoticed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// These bounds give more than a million states each.
const BOUNDS: [Bounds; 3] = [
    Bounds {
        asking: Asking::ForOneLock,
        depth: 13,
        time: 6,
        calls: 3,
        messages: 2,
        duplicates: 1,
        conflicts: 0,
        crashes: 1,
    },
    Bounds {
        asking: Asking::ForASet,
        depth: 12,
        time: 6,
        calls: 3,
        messages: 2,
        duplicates: 1,
        conflicts: 1,
        crashes: 0,
    },
    Bounds {
        asking: Asking::InLine,
        depth: 10,
        time: 6,
        calls: 2,
        messages: 2,
        duplicates: 1,
        conflicts: 0,
        crashes: 1,
    },
];

fn modelled(mistake: Option<Mistake>) -> anyhow::Result<ExitCode> {
    let mut good = true;
    for bounds in BOUNDS {
        good &= modelled_within(bounds, mistake)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn modelled_within(bounds: Bounds, mistake: Option<Mistake>) -> anyhow::Result<bool> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {human_pos} states, {per_sec}")?);
    let started = std::time::Instant::now();
    let checked = check(bounds, mistake, |states| bar.set_position(states as u64));
    bar.finish_and_clear();
    println!("{bounds:?}: {} different states in {:.0} s", checked.states, started.elapsed().as_secs_f64());
    for (what, often) in &checked.sometimes {
        println!("{often:>14}  {what}");
    }
    for broken in &checked.broken {
        eprintln!("VIOLATION: {broken}");
    }
    let never: Vec<_> = checked.sometimes.iter().filter(|(_, often)| *often == 0).map(|(what, _)| *what).collect();
    if !never.is_empty() && checked.broken.is_empty() {
        eprintln!("this run proves nothing, because some events never happened: {}", never.join("; "));
    }
    Ok(checked.broken.is_empty() && never.is_empty() && checked.states >= 1_000_000)
}

fn replay(seed: u64, sdk: bool, mistake: Option<Mistake>) -> ExitCode {
    mistakes::set(mistake);
    let run = run(seed, Options { trace: true, sdk, ..Options::default() });
    for line in &run.trace {
        println!("{line}");
    }
    println!("\nseed {seed}, hash {:016x}", run.hash);
    match run.violation {
        Some(violation) => {
            println!("VIOLATION of {}: {violation}", violation.invariant.promise());
            ExitCode::FAILURE
        }
        None => {
            println!("no violation");
            ExitCode::SUCCESS
        }
    }
}

fn batch(arguments: &Arguments, mistake: Option<Mistake>) -> anyhow::Result<ExitCode> {
    if arguments.seeds == 0 {
        bail!("--seeds must be at least 1; got 0");
    }
    let threads = arguments.threads();
    let last = arguments.base.saturating_add(arguments.seeds);
    if arguments.crowd && last > FIRST_CROWD {
        bail!("with --crowd, --base and --seeds together must be at most {FIRST_CROWD}; got {last}");
    }
    let base = if arguments.crowd { FIRST_CROWD + arguments.base } else { arguments.base };
    let batch = Batch { base, seeds: arguments.seeds, threads, mistake, stop: mistake.map(|_| 1) };
    let bar = ProgressBar::new(arguments.seeds);
    let style = "{elapsed_precise} {wide_bar} {human_pos}/{human_len} seeds, {per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    // Read before the run, because the commit may change during a long run.
    let commit = commit();
    let summary = batch.run(|done| bar.inc(done));
    bar.finish_and_clear();
    let text = describe(&summary, &batch, &commit);
    println!("{text}");
    if let Some(file) = &arguments.record {
        std::fs::write(file, format!("{text}\n")).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let never = never(&summary, arguments.crowd);
    if mistake.is_none() && summary.seeds >= ENOUGH && !never.is_empty() {
        eprintln!("this run proves nothing, because some events never happened: {}", never.join("; "));
        return Ok(ExitCode::FAILURE);
    }
    Ok(verdict(&summary, mistake))
}

/// What never happened, although it should. Only crowds have callers that sleep between their calls, and no crowd has sets.
fn never(summary: &Summary, crowd: bool) -> Vec<&'static str> {
    let mut counts = summary.counts.list();
    if crowd {
        counts.drain(..OF_SETS);
    } else {
        counts.retain(|(what, _)| !what.starts_with("tickets brought back"));
    }
    counts.into_iter().filter(|(_, often)| *often == 0).map(|(what, _)| what).collect()
}

fn verdict(summary: &Summary, mistake: Option<Mistake>) -> ExitCode {
    let flag = mistake.map_or(String::new(), |mistake| format!(" --mistake {mistake:?}"));
    for (seed, violation) in summary.violations.iter().take(10) {
        eprintln!("VIOLATION of {}: {violation}", violation.invariant.promise());
        eprintln!("  seed {seed}, commit {}, replay: cargo sim --seed {seed}{flag}", commit());
    }
    if summary.violations.is_empty() {
        println!("no violation");
        return ExitCode::SUCCESS;
    }
    let mut of_each: BTreeMap<Invariant, Vec<u64>> = BTreeMap::new();
    for (seed, violation) in &summary.violations {
        of_each.entry(violation.invariant).or_default().push(*seed);
    }
    for (invariant, seeds) in of_each {
        eprintln!("{:>8} times {invariant:?}, first by the seeds {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    eprintln!("{} of {} seeds have a violation", summary.violations.len(), summary.seeds);
    ExitCode::FAILURE
}

fn describe(summary: &Summary, batch: &Batch, commit: &str) -> String {
    let mut text = String::new();
    let seconds = summary.took.as_secs_f64();
    let per_core = summary.seeds as f64 / seconds / batch.threads as f64;
    let first = batch.base;
    let last = first.wrapping_add(batch.seeds - 1);
    let _ = writeln!(text, "seeds {first} to {last}, commit {commit}, {}", machine());
    let _ = writeln!(
        text,
        "{} seeds in {seconds:.1} s on {} threads: {per_core:.0} per second and thread; {:.1} grants per seed; {} violations; hash {:016x}\n",
        summary.seeds,
        batch.threads,
        summary.counts.grants as f64 / summary.seeds as f64,
        summary.violations.len(),
        summary.hash,
    );
    let _ = writeln!(text, "{:>14} {:>10}", "how often", "in seeds");
    for ((what, often), (_, seeds)) in summary.counts.list().iter().zip(summary.seeds_with.list()) {
        let _ = writeln!(text, "{often:>14} {seeds:>10}  {what}");
    }
    text
}

fn commit() -> String {
    let said = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = said(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changed = said(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| !changes.is_empty());
    if changed { format!("{commit} and changes") } else { commit }
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let cores = available_parallelism().map_or(1, usize::from);
    let profile = if cfg!(debug_assertions) { "overflow checks on" } else { "optimised" };
    format!(
        "{cores} × {} ({}-{}, {profile})",
        model.unwrap_or("an unknown CPU"),
        std::env::consts::ARCH,
        std::env::consts::OS
    )
}
