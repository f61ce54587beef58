//! Measures the time from the start of the `lock-task` process to its answers, and compares it with two bare functions
//! that send the same two requests. All run behind the same Runtime API and on the same DynamoDB.
#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod build;
mod report;
mod rounds;
mod statistics;

use crate::build::{Binary, build_all};
use crate::rounds::{STARTS_PER_COPY, Start, measure};
use crate::statistics::Comparison;
use anyhow::{Context, bail};
use clap::Parser;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Measures cold starts of lock-task and of two bare functions.
#[derive(Parser)]
#[command(name = "lambda-lock-cold-start")]
struct Arguments {
    /// Cold starts of each function. The functions take turns.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    starts: u32,
    /// Also measures lock-task linked with the GNU C library.
    #[arg(long)]
    gnu: bool,
    /// Prints JSON instead of the Markdown block for README.md.
    #[arg(long)]
    json: bool,
    /// Fails if the first answer takes a larger part of that of bare-defaults than is promised.
    #[arg(long)]
    check: bool,
}

/// A figure of a start: its name, its unit, and how to read it.
type Measure = (&'static str, &'static str, fn(&Start) -> f64);

const FIRST_ANSWER: &str = "process start to first answer";

const MEASURES: [Measure; 6] = [
    ("process start to first poll", "ms", |start| start.init),
    (FIRST_ANSWER, "ms", |start| start.first_answer),
    ("process start to second answer", "ms", |start| start.second_answer),
    ("largest resident memory", "kB", |start| start.max_rss_kb),
    ("CPU of the process", "ms", |start| start.cpu),
    ("page faults", "  ", |start| start.page_faults),
];

/// What is promised: the largest ratio of the first answer of lock-task to that of bare-defaults. The other figures explain it.
const MAX_RATIO: f64 = 0.35;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let binaries = build_all(arguments.gnu).await?;
    let starts = measure(&binaries, arguments.starts).await?;
    let comparisons = compare(&binaries, &starts);
    if arguments.json {
        println!("{:#}", figures(&binaries, &comparisons, arguments.starts));
    } else {
        print!("{}", report::markdown(&binaries, &comparisons, arguments.starts));
    }
    if arguments.check {
        check(&comparisons)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A figure of lock-task and the same figure of another function.
struct Row {
    what: &'static str,
    unit: &'static str,
    other: &'static str,
    comparison: Comparison,
}

fn compare(binaries: &[Binary], starts: &[Vec<Start>]) -> Vec<Row> {
    let mut measured = binaries.iter().zip(starts);
    let Some((_, ours)) = measured.next() else { return Vec::new() };
    let mut rows = Vec::new();
    for (what, unit, figure) in MEASURES {
        for (&Binary { name: other, .. }, theirs) in measured.clone() {
            let figures = ours.iter().map(figure).zip(theirs.iter().map(figure));
            let comparison = Comparison::of(figures, STARTS_PER_COPY as usize);
            rows.push(Row { what, unit, other, comparison });
        }
    }
    rows
}

fn figures(binaries: &[Binary], rows: &[Row], starts: u32) -> Value {
    let sizes = binaries.iter().map(|binary| json!({ "function": binary.name, "bytes": binary.bytes }));
    let rows = rows.iter().map(|Row { what, unit, other, comparison, .. }| {
        let (low, high) = comparison.interval();
        json!({
            "what": what,
            "unit": unit,
            "lockTask": comparison.ours(),
            "other": other,
            "otherMedian": comparison.theirs(),
            "ratio": comparison.ratio(),
            "ratioInterval95": [low, high],
        })
    });
    json!({ "starts": starts, "binaries": sizes.collect::<Vec<_>>(), "comparisons": rows.collect::<Vec<_>>() })
}

fn check(rows: &[Row]) -> anyhow::Result<()> {
    let promised = rows.iter().find(|row| (row.what, row.other) == (FIRST_ANSWER, "bare-defaults"));
    let ratio = promised.context("bare-defaults was not measured")?.comparison.ratio();
    if ratio > MAX_RATIO {
        bail!("{FIRST_ANSWER}: lock-task is at {ratio:.3} of bare-defaults, more than {MAX_RATIO}");
    }
    Ok(())
}
