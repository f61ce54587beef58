//! Writes the measurement as the table of `component/README.md`.

use crate::overhead::{Cost, Measured};
use anyhow::Context;
use std::path::Path;
use std::time::Duration;

/// The report stands between these two lines of the file. Everything between them is replaced.
const BEGIN: &str = "<!-- The overhead, as `component/check overhead` measured it: do not edit by hand. -->";
const END: &str = "<!-- End of the overhead. -->";

/// A Markdown table. All hosts are compared with the first.
pub fn table(names: &[&str], measured: &Measured) -> String {
    let mut table = String::from(
        "| host | time a pair | | CPU a pair, of the host's process | | CPU that is added |\n|---|---:|---:|---:|---:|---:|\n",
    );
    let Some(first) = measured.costs.first() else { return table };
    for (name, cost) in names.iter().zip(&measured.costs) {
        let (cpu, of_cpu, added) = match (cost.cpu, first.cpu) {
            (Some(cpu), Some(native)) => (millis(cpu), ratio(cpu, native), millis(cpu.saturating_sub(native))),
            _ => ("unknown".to_owned(), String::new(), "unknown".to_owned()),
        };
        let Cost { time, .. } = *cost;
        table += &format!("| {name} | {} | {} | {cpu} | {of_cpu} | {added} |\n", millis(time), ratio(time, first.time));
    }
    table
}

/// Writes a report between the two marks of a file.
///
/// # Errors
/// If the file cannot be read or written, or does not have the marks.
pub fn write(path: &Path, report: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{path:?} cannot be read"))?;
    let replaced = between(&text, report)
        .with_context(|| format!("{path:?} does not have the lines {BEGIN:?} and {END:?} around the report"))?;
    std::fs::write(path, replaced).with_context(|| format!("{path:?} cannot be written"))
}

fn between(text: &str, report: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", report.trim()))
}

fn millis(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1_000.0)
}

fn ratio(ours: Duration, theirs: Duration) -> String {
    if theirs.is_zero() { String::new() } else { format!("{:.2} ×", ours.as_secs_f64() / theirs.as_secs_f64()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(time: u64, cpu: Option<u64>) -> Cost {
        Cost { time: Duration::from_micros(time), cpu: cpu.map(Duration::from_micros) }
    }

    #[test]
    fn all_hosts_are_compared_with_the_first() {
        let measured =
            Measured { rounds: 3, costs: vec![cost(1_000, Some(500)), cost(2_500, Some(1_500)), cost(900, None)] };
        let table = table(&["the crate", "a host", "another"], &measured);
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| the crate | 1.00 ms | 1.00 × | 0.50 ms | 1.00 × | 0.00 ms |",
                "| a host | 2.50 ms | 2.50 × | 1.50 ms | 3.00 × | 1.00 ms |",
                "| another | 0.90 ms | 0.90 × | unknown |  | unknown |",
            ]
        );
    }

    #[test]
    fn a_report_replaces_the_last_one_and_nothing_else() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = between(&text, "new").unwrap_or_default();
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between(&once, "new").as_deref(), Some(once.as_str()));
        assert_eq!(between("no marks", "new"), None);
    }
}
