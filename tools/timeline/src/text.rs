//! A timeline for a terminal.

use crate::event::Event;
use crate::spans::{Drawing, Mark, What};

/// The narrowest picture that still shows something.
const NARROWEST: usize = 20;
/// The widest: no terminal shows more.
const WIDEST: usize = 1_000;
/// What the symbols mean.
const LEGEND: &str = "· waits  █ holds  ░ its lease is over  × lost it  » took it over";

/// Draws the events in this many columns, with a line per holder. The last line says what the symbols mean.
pub fn text(events: &[Event], columns: usize) -> String {
    let columns = columns.min(WIDEST);
    let Drawing { lanes, begin, end } = Drawing::of(events);
    if lanes.is_empty() {
        return "nothing happened\n".to_owned();
    }
    let labels: Vec<_> = lanes.iter().map(|lane| lane.label((columns / 2).max(NARROWEST))).collect();
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    let width = columns.saturating_sub(widest + 2).max(NARROWEST);
    let scale = width as f64 / (end - begin).max(1) as f64;
    let column = |at: u64| (((at - begin) as f64 * scale) as usize).min(width);
    let mut drawn = String::new();
    for (label, lane) in labels.iter().zip(&lanes) {
        let mut line = vec![' '; width];
        for span in &lane.spans {
            // Each span gets a column at least.
            let from = column(span.from).min(width - 1);
            line[from..column(span.to).max(from + 1)].fill(symbol(span.what));
        }
        for mark in &lane.marks {
            let (at, symbol) = match *mark {
                Mark::Lost(at) => (at, '×'),
                Mark::TookOver { at, .. } => (at, '»'),
            };
            line[column(at).min(width - 1)] = symbol;
        }
        let line: String = line.into_iter().collect();
        drawn += &format!("{label:widest$}  {}\n", line.trim_end());
    }
    let seconds = format!("{:.1} s", (end - begin) as f64 / 1000.0);
    drawn += &format!("{:widest$}  0 s{seconds:>1$}\n", "", width.saturating_sub(3), widest = widest);
    drawn + &format!("{LEGEND}\n")
}

fn symbol(what: What) -> char {
    match what {
        What::Waiting => '·',
        What::Held => '█',
        What::Dead => '░',
    }
}
