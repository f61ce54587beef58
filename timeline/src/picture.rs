//! A timeline as an SVG.

use crate::event::Event;
use crate::spans::{Lane, What, lanes};
use svg::Document;
use svg::node::element::{Group, Rectangle, Style, Text, Title};

const WIDTH: f64 = 900.0;
const LABELS: f64 = 260.0;
const LANE: f64 = 26.0;
const BAR: f64 = 16.0;
const MARGIN: f64 = 12.0;

/// The colours are readable on a white and on a black page.
const STYLE: &str =
    "text{font:13px sans-serif;fill:#888}.held{fill:#2a9d8f}.waiting{fill:#e9c46a}.dead{fill:#c1121f;opacity:.5}";

/// Draws the events. Each holder has a bar: yellow while it waited, green while it held the lock, red from the end of its lease
/// until somebody else got the lock.
pub fn svg(events: &[Event]) -> String {
    let (lanes, begin, end) = lanes(events);
    let height = MARGIN * 2.0 + LANE * (lanes.len() as f64 + 1.0);
    let scale = (WIDTH - LABELS - MARGIN) / (end - begin).max(1) as f64;
    let x = |at: u64| LABELS + (at - begin) as f64 * scale;
    let mut document = Document::new().set("viewBox", (0.0, 0.0, WIDTH, height)).set("role", "img");
    document = document.add(Title::new("Who held the lock, over time")).add(Style::new(STYLE));
    for (index, lane) in lanes.iter().enumerate() {
        let top = MARGIN + LANE * index as f64;
        document = document.add(drawn(lane, top, &x));
    }
    let seconds = format!("{:.1} s", (end - begin) as f64 / 1000.0);
    let axis = MARGIN + LANE * lanes.len() as f64 + BAR;
    document = document.add(Text::new("0 s").set("x", LABELS).set("y", axis));
    let last = Text::new(seconds).set("x", WIDTH - MARGIN).set("y", axis).set("text-anchor", "end");
    document.add(last).to_string()
}

fn drawn(lane: &Lane<'_>, top: f64, x: &impl Fn(u64) -> f64) -> Group {
    let label = Text::new(lane.label()).set("x", MARGIN).set("y", top + BAR - 3.0);
    let mut group = Group::new().add(label);
    for span in &lane.spans {
        let class = match span.what {
            What::Waiting => "waiting",
            What::Held => "held",
            What::Dead => "dead",
        };
        let (from, to) = (x(span.from), x(span.to));
        let bar = Rectangle::new().set("class", class).set("x", from).set("y", top).set("height", BAR);
        group = group.add(bar.set("width", (to - from).max(1.0)));
    }
    group
}
