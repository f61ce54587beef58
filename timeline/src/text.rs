//! A timeline for a terminal.

use crate::event::Event;
use crate::spans::{Lane, Span, What, lanes};

/// The narrowest picture that still shows something.
const NARROWEST: usize = 20;

/// Draws the events in this many columns. A line per holder: `·` it waited, `█` it held the lock, `░` its lease was over and
/// nobody had the lock yet.
pub fn text(events: &[Event], columns: usize) -> String {
    let (lanes, begin, end) = lanes(events);
    if lanes.is_empty() {
        return "nothing happened\n".to_owned();
    }
    let labels: Vec<_> = lanes.iter().map(Lane::label).collect();
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    let width = columns.saturating_sub(widest + 2).max(NARROWEST);
    let mut drawn = String::new();
    for (label, lane) in labels.iter().zip(&lanes) {
        let mut line = vec![' '; width];
        for span in &lane.spans {
            let (from, to) = columns_of(span, begin, end, width);
            line[from..to].fill(symbol(span.what));
        }
        let line: String = line.into_iter().collect();
        drawn += &format!("{label:widest$}  {}\n", line.trim_end());
    }
    let seconds = format!("{:.1} s", (end - begin) as f64 / 1000.0);
    drawn + &format!("{:widest$}  0 s{seconds:>1$}\n", "", width.saturating_sub(3), widest = widest)
}

fn symbol(what: What) -> char {
    match what {
        What::Waiting => '·',
        What::Held => '█',
        What::Dead => '░',
    }
}

/// Each span gets a column at least.
fn columns_of(span: &Span, begin: u64, end: u64, width: usize) -> (usize, usize) {
    let scale = width as f64 / (end - begin).max(1) as f64;
    let column = |at: u64| (((at - begin) as f64 * scale) as usize).min(width);
    let from = column(span.from).min(width - 1);
    (from, column(span.to).max(from + 1))
}
