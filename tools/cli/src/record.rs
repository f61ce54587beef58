//! Events, as they are printed and read.

use crate::exit::Failure;
use crate::row::from_epoch_millis;
use crate::screen::{self, FAINT, STRONG, plain};
use anstyle::Style;
use lambda_lock_timeline::{Change, Event};
use std::io::Write;

/// Prints an event: a line of text, or of JSON for `timeline`.
pub(crate) fn write(out: &mut impl Write, event: &Event, json: bool) -> std::io::Result<()> {
    if json {
        writeln!(out, "{}", screen::json(event)?)?;
        return out.flush();
    }
    let at = from_epoch_millis(event.at).map(screen::time).unwrap_or_default();
    let (style, word) = (style(event.change), event.change.word());
    let (key, holder) = (plain(&event.key), plain(&event.holder));
    write!(out, "{at}  {style}{word:<10}{style:#}  {STRONG}{key}{STRONG:#}  {holder}")?;
    if let Some(token) = event.fencing_token {
        write!(out, "  {FAINT}token {token}{FAINT:#}")?;
    }
    if let Some(reason) = &event.reason {
        write!(out, "  {}", plain(reason))?;
    }
    writeln!(out)?;
    out.flush()
}

fn style(change: Change) -> Style {
    match change {
        Change::Granted | Change::Renewed | Change::Held => screen::GOOD,
        Change::Dead | Change::TakenOver | Change::Broken | Change::Frozen => screen::DOUBTFUL,
        _ => FAINT,
    }
}

/// Reads what `watch --json` and `history --json` print.
pub(crate) fn read(text: &str) -> Result<Vec<Event>, Failure> {
    let read = |(number, line): (usize, &str)| {
        let what = "is no line of watch --json or history --json";
        serde_json::from_str(line).map_err(|error| Failure::Usage(format!("line {} {what}: {error}", number + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(read).collect()
}
