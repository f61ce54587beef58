//! Measures the time from the start of the `lock-task` process to its answers, and compares it with two bare functions
//! that send the same two requests. All run behind the same Runtime API and on the same DynamoDB.
#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod build;
mod report;
mod rounds;
mod statistics;

use crate::build::{Binary, build_all};
use crate::rounds::{Start, measure};
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
    /// Fails if a ratio is larger than promised: 0.45 of the function with defaults, 1.05 of the lean function.
    #[arg(long)]
    check: bool,
}

/// A figure of a start: its name, its unit, and how to read it.
type Measure = (&'static str, &'static str, fn(&Start) -> f64);

const MEASURES: [Measure; 6] = [
    ("process start to first poll", "ms", |start| start.init),
    ("process start to first answer", "ms", |start| start.first_answer),
    ("process start to second answer", "ms", |start| start.second_answer),
    ("largest resident memory", "kB", |start| start.max_rss_kb),
    ("CPU of the process", "ms", |start| start.cpu),
    ("page faults", "  ", |start| start.page_faults),
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
    limit: f64,
    comparison: Comparison,
}

impl Row {
    /// Promises exist for the times to the answers and for memory. The other figures explain them.
    fn is_promised(&self) -> bool {
        self.limit.is_finite() && (self.what.ends_with("answer") || self.unit == "kB")
    }
}

fn compare(binaries: &[Binary], starts: &[Vec<Start>]) -> Vec<Row> {
    let mut measured = binaries.iter().zip(starts);
    let Some((_, ours)) = measured.next() else { return Vec::new() };
    let mut rows = Vec::new();
    for (what, unit, figure) in MEASURES {
        for (&Binary { name: other, limit, .. }, theirs) in measured.clone() {
            let comparison = Comparison::of(ours.iter().map(figure).zip(theirs.iter().map(figure)));
            rows.push(Row { what, unit, other, limit, comparison });
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
    for Row { what, other, limit, comparison, .. } in rows.iter().filter(|row| row.is_promised()) {
        let ratio = comparison.ratio();
        if ratio > *limit {
            bail!("{what}: lock-task is at {ratio:.3} of {other}, more than {limit}");
        }
    }
    Ok(())
}
