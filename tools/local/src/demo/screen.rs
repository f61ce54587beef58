//! The output of the demo: aligned lines with the time since the start, in colour only on a
//! terminal.

use super::crew::{Heard, WorkerId};
use super::message::Event;
use super::story::Takeover;
use anstyle::{AnsiColor, Style};
use std::fmt;
use std::time::{Duration, Instant};

const TITLE: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// Prints the progress of the demo.
#[derive(Debug)]
pub(crate) struct Screen {
    started: Instant,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now() }
    }

    /// Prints the title of a part.
    pub(crate) fn title(&self, title: impl fmt::Display) {
        anstream::println!("\n{TITLE}{title}{TITLE:#}");
    }

    /// Prints a signal that the demo sends to a worker.
    pub(crate) fn signal(&self, worker: WorkerId, signal: &str) {
        self.line(Instant::now(), worker, BAD, signal);
    }

    /// Prints a takeover by another worker.
    pub(crate) fn takeover(&self, Takeover { from, to, after }: &Takeover) {
        let (worker, token, after) = (to.worker, to.token, Seconds(*after));
        let what = format_args!("token {token}  took over from {}, {after} after the signal", from.worker);
        self.line(to.heard_at, worker, TITLE, what);
    }

    /// Prints an event of a worker, unless it is of no interest.
    pub(crate) fn event(&self, heard: &Heard) {
        let Heard { from, at, event } = heard;
        let line = |style, what: fmt::Arguments<'_>| self.line(*at, *from, style, what);
        match event {
            Event::AboutToWrite { token, lease_left } => {
                line(TITLE, format_args!("token {token}  about to write, lease has {} left", Seconds(*lease_left)))
            }
            Event::Applied { token, from, to } => {
                line(Style::new(), format_args!("token {token}  counter {from} -> {to}"))
            }
            Event::Refused { token, last_token, lease_left } => line(
                GOOD,
                format_args!(
                    "token {token}  refused, the counter has seen token {last_token}; lease has {} left",
                    Seconds(*lease_left)
                ),
            ),
            Event::Released { token, already_gone: true, .. } => {
                line(TITLE, format_args!("token {token}  released, but the lock was already gone"))
            }
            Event::NotReleased { token, why } => line(TITLE, format_args!("token {token}  not released: {why}")),
            _ => {}
        }
    }

    /// Prints the result of an invocation.
    pub(crate) fn said(&self, function: &str, what: impl fmt::Display) {
        self.line(Instant::now(), function, Style::new(), what);
    }

    fn line(&self, at: Instant, who: impl fmt::Display, style: Style, what: impl fmt::Display) {
        let elapsed = Seconds(at.saturating_duration_since(self.started)).to_string();
        anstream::println!("{elapsed:>9}  {who:<12}  {style}{what}{style:#}");
    }
}

/// Prints a check of the verdict.
pub(crate) fn check(good: bool, what: impl fmt::Display) {
    let (style, word) = if good { (GOOD, "ok") } else { (BAD, "FAILED") };
    anstream::println!("  {style}{word:<6}{style:#}  {what}");
}

/// Prints what was drawn.
pub(crate) fn drawing(title: &str, drawn: &str) {
    anstream::println!("\n{TITLE}{title}{TITLE:#}\n{}", drawn.trim_end());
}

/// Prints a line of the verdict that is not a check.
pub(crate) fn figure(name: &str, what: impl fmt::Display) {
    anstream::println!("  {DIM}{name:<6}{DIM:#}  {what}");
}

/// Prints the last line.
pub(crate) fn verdict(good: bool) {
    let (style, word) = if good { (GOOD, "passed") } else { (BAD, "FAILED") };
    anstream::println!("\nVerdict: {style}{word}{style:#}");
}

/// A duration in seconds, for output.
pub(crate) struct Seconds(pub(crate) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.0.as_secs_f64())
    }
}
