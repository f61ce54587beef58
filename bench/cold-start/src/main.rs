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
use anyhow::bail;
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
    /// Also measures a function with the Java lock client. Needs a JDK and Maven.
    #[arg(long)]
    java: bool,
    /// Also measures lock-task linked with the GNU C library.
    #[arg(long)]
    gnu: bool,
    /// Prints JSON instead of the Markdown block for README.md.
    #[arg(long)]
    json: bool,
    /// Fails if a ratio is larger than promised.
    #[arg(long)]
    check: bool,
}

/// A figure of a start: its name, its unit, and how to read it.
type Measure = (&'static str, &'static str, fn(&Start) -> f64);

const FIRST_ANSWER: &str = "process start to first answer";
const SECOND_ANSWER: &str = "process start to second answer";
const MEMORY: &str = "largest resident memory";

const MEASURES: [Measure; 6] = [
    ("process start to first poll", "ms", |start| start.init),
    (FIRST_ANSWER, "ms", |start| start.first_answer),
    (SECOND_ANSWER, "ms", |start| start.second_answer),
    (MEMORY, "kB", |start| start.max_rss_kb),
    ("CPU of the process", "ms", |start| start.cpu),
    ("page faults", "  ", |start| start.page_faults),
];

/// What is promised: a figure, another function, and the largest ratio of lock-task to it. The other figures explain
/// these.
const PROMISES: [(&str, &str, f64); 6] = [
    (FIRST_ANSWER, "bare-lean", 1.05),
    (FIRST_ANSWER, "bare-defaults", 0.45),
    (SECOND_ANSWER, "bare-lean", 1.05),
    (SECOND_ANSWER, "bare-defaults", 0.45),
    (MEMORY, "bare-lean", 1.2),
    (MEMORY, "bare-defaults", 0.5),
];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let binaries = build_all(arguments.java, arguments.gnu).await?;
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

impl Row {
    /// The largest ratio that is promised.
    fn promise(&self) -> Option<f64> {
        let promise = PROMISES.iter().find(|(what, other, _)| (self.what, self.other) == (*what, *other));
        promise.map(|(_, _, limit)| *limit)
    }
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
    for row in rows {
        let (Row { what, other, comparison, .. }, Some(limit)) = (row, row.promise()) else { continue };
        let ratio = comparison.ratio();
        if ratio > limit {
            bail!("{what}: lock-task is at {ratio:.3} of {other}, more than {limit}");
        }
    }
    Ok(())
}
