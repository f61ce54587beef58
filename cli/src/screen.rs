//! What the commands share in what they print.

use anstyle::{AnsiColor, Style};
use std::time::{Duration, SystemTime};

pub(crate) const WRONG: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const STRONG: Style = Style::new().bold();

/// A text of a row, as it may be shown in a terminal: control characters are escaped.
pub(crate) fn plain(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().collect::<String>() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// A duration in its two largest units, without fractions of a second.
pub(crate) fn span(duration: Duration) -> String {
    let text = humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// A time of day in UTC.
pub(crate) fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}
