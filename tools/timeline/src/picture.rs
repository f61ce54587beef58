//! A timeline as an SVG.

use crate::event::Event;
use crate::spans::{Drawing, Lane, Mark, What};
use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Style, Text, Title};

const WIDTH: f64 = 900.0;
const LABELS: f64 = 260.0;
/// So many characters fit beside the bars.
const LABEL: usize = 34;
const LANE: f64 = 26.0;
const BAR: f64 = 16.0;
const MARGIN: f64 = 12.0;

/// The colours are readable on a white and on a black page.
const STYLE: &str = "text{font:13px sans-serif;fill:#888}.held{fill:#2a9d8f}.waiting{fill:#e9c46a}\
                     .dead{fill:#c1121f;opacity:.5}.lost{stroke:#c1121f;stroke-width:2}";
const LEGEND: [(&str, &str, f64); 4] = [
    ("waiting", "waits", 70.0),
    ("held", "holds the lock", 125.0),
    ("dead", "its lease is over", 140.0),
    ("lost", "taken over, or broken", 170.0),
];

/// Draws the events. Each holder has a bar: yellow while it waits, green while it holds the lock, red from the end of its lease
/// until somebody else gets the lock. A red line goes from a holder that lost the lock to the one that took it over.
pub fn svg(events: &[Event]) -> String {
    let Drawing { lanes, begin, end } = Drawing::of(events);
    let height = MARGIN * 2.0 + LANE * (lanes.len() as f64 + 2.0);
    let scale = (WIDTH - LABELS - MARGIN) / (end - begin).max(1) as f64;
    let x = |at: u64| tenth(LABELS + (at - begin) as f64 * scale);
    let mut document = Document::new().set("viewBox", (0.0, 0.0, WIDTH, height)).set("role", "img");
    document = document.add(Title::new("Who held the lock, over time")).add(Style::new(STYLE));
    for (number, lane) in lanes.iter().enumerate() {
        document = document.add(bars(lane, top(number), &x));
    }
    for (number, lane) in lanes.iter().enumerate() {
        document = lane.marks.iter().fold(document, |document, mark| document.add(line(number, mark, &x)));
    }
    let seconds = format!("{:.1} s", (end - begin) as f64 / 1000.0);
    let axis = top(lanes.len()) + BAR;
    document = document.add(Text::new("0 s").set("x", LABELS).set("y", axis));
    let last = Text::new(seconds).set("x", WIDTH - MARGIN).set("y", axis).set("text-anchor", "end");
    document.add(last).add(legend(top(lanes.len() + 1))).to_string()
}

fn top(lane: usize) -> f64 {
    MARGIN + LANE * lane as f64
}

/// Digits that nobody sees would make the picture large.
fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

fn bars(lane: &Lane<'_>, top: f64, x: &impl Fn(u64) -> f64) -> Group {
    let label = Text::new(lane.label(LABEL)).set("x", MARGIN).set("y", top + BAR - 3.0);
    lane.spans.iter().fold(Group::new().add(label), |group, span| {
        let class = match span.what {
            What::Waiting => "waiting",
            What::Held => "held",
            What::Dead => "dead",
        };
        let (from, to) = (x(span.from), x(span.to));
        group.add(bar(class, from, top, tenth((to - from).max(1.0))))
    })
}

fn bar(class: &str, from: f64, top: f64, width: f64) -> Rectangle {
    let bar = Rectangle::new().set("class", class).set("x", from).set("y", top);
    bar.set("width", width).set("height", BAR)
}

/// From the lane of the holder that lost the lock to that of the next one, or across its own where there is none.
fn line(lane: usize, mark: &Mark, x: &impl Fn(u64) -> f64) -> Line {
    let (at, from) = match *mark {
        Mark::Lost(at) => (at, lane),
        Mark::TookOver { at, from } => (at, from),
    };
    let line = Line::new().set("class", "lost").set("x1", x(at)).set("x2", x(at));
    line.set("y1", top(lane.min(from))).set("y2", top(lane.max(from)) + BAR)
}

fn legend(top: f64) -> Group {
    let mut left = LABELS;
    LEGEND.into_iter().fold(Group::new(), |group, (class, text, width)| {
        let at = left;
        left += width;
        let said = Text::new(text).set("x", at + 18.0).set("y", top + BAR - 3.0);
        let group = group.add(said);
        if class == "lost" {
            let line = Line::new().set("class", class).set("x1", at + 8.0).set("x2", at + 8.0);
            return group.add(line.set("y1", top).set("y2", top + BAR));
        }
        group.add(bar(class, at, top, 12.0))
    })
}
