//! `ls`: the locks of the table, as they are read.

use crate::arguments::ListOptions;
use crate::connection;
use crate::exit::Failure;
use crate::row::{Row, State, from_epoch_millis};
use crate::screen::{self, FAINT, STRONG};
use anstyle::Style;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// When the progress of a list that prints nothing begins to be told.
const SILENCE: Duration = Duration::from_secs(2);

/// What was read so far.
#[derive(Default)]
struct Read {
    rows: u64,
    units: f64,
    printed: u64,
}

pub(crate) async fn list(connection: &connection::Options, options: &ListOptions) -> Result<ExitCode, Failure> {
    let (locks, json) = (connection.open().await?, options.format.json);
    let (mut read, begun) = (Read::default(), Instant::now());
    let mut pages = locks.operator().list();
    let mut out = anstream::stdout().lock();
    let most = options.limit.unwrap_or(u64::MAX);
    let mut stopped = false;
    // Of a table that cannot be read there is nothing to print but the error.
    let mut heading =
        (!json).then(|| format!("{:<9}{:<9}{:<13}{:<15}{:<25} HOLDER", "STATE", "LEFT", "RENEWED", "TOKEN", "KEY"));
    while let Some(page) = pages.next().await? {
        if let Some(heading) = heading.take() {
            writeln!(out, "{STRONG}{heading}{STRONG:#}")?;
        }
        read.rows += page.rows_read;
        read.units += page.read_units;
        let now = SystemTime::now();
        for listed in page.rows {
            let row = Row::of_listed(listed, now, connection.max_clock_skew());
            let Some(row) = row.filter(|row| is_wanted(row, options)) else { continue };
            if read.printed == most {
                stopped = true;
                break;
            }
            read.printed += 1;
            if json {
                writeln!(out, "{}", screen::json(&row)?)?;
            } else {
                write_line(&mut out, &row, now)?;
            }
        }
        out.flush()?;
        if begun.elapsed() > SILENCE {
            screen::progress(format_args!("{} rows read, {:.1} read units", read.rows, read.units));
        }
        stopped |= read.units >= options.read_units;
        if stopped {
            break;
        }
    }
    screen::progress_ends();
    tell(&read, !stopped, options, json);
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(row: &Row, options: &ListOptions) -> bool {
    let lock = row.lock.as_ref();
    (options.state.is_empty() || options.state.contains(&row.state))
        && (!options.frozen || lock.is_some_and(|lock| lock.freeze_reason.is_some()))
        && options.prefix.as_deref().is_none_or(|prefix| row.key.starts_with(prefix))
        && options.contains.as_deref().is_none_or(|part| {
            row.key.contains(part) || row.sort_key.as_ref().is_some_and(|sort_key| sort_key.contains(part))
        })
        && options.owner.as_deref().is_none_or(|owner| lock.is_some_and(|lock| lock.holder.contains(owner)))
        // The crate names none of a lock that is free.
        && options.workflow.as_deref().is_none_or(|arn| lock.is_some_and(|lock| lock.workflow.as_deref() == Some(arn)))
}

fn write_line(out: &mut impl Write, row: &Row, now: SystemTime) -> std::io::Result<()> {
    let style = style(row.state);
    let state = format!("{:?}", row.state).to_lowercase();
    let lock = row.lock.as_ref();
    let at = |millis: Option<u64>| millis.and_then(from_epoch_millis);
    let left = match (row.state, lock.and_then(|lock| at(lock.lease_ends_at))) {
        (State::Held, Some(end)) => screen::span(end.duration_since(now).unwrap_or_default()),
        (State::Held, None) => "?".to_owned(),
        _ => "-".to_owned(),
    };
    let renewed = match lock.and_then(|lock| at(lock.renewed_at)) {
        Some(then) => format!("{} ago", screen::span(now.duration_since(then).unwrap_or_default())),
        None => "-".to_owned(),
    };
    let token = lock.and_then(|lock| lock.fencing_token).map_or("-".to_owned(), |token| token.to_string());
    let mut key = screen::plain(&row.key);
    if let Some(sort_key) = &row.sort_key {
        key = format!("{key} {}", screen::plain(sort_key));
    }
    let holder = match (lock, &row.problem) {
        (Some(lock), _) => match &lock.freeze_reason {
            None => screen::plain(&lock.holder),
            Some(reason) => format!("{} (frozen: {})", screen::plain(&lock.holder), screen::plain(reason)),
        },
        (None, Some(problem)) => screen::plain(problem),
        (None, None) => "-".to_owned(),
    };
    // However wide a column is, a space follows it.
    writeln!(out, "{style}{state:<8} {style:#}{left:<8} {renewed:<12} {token:<14} {key:<25} {holder}")
}

fn style(state: State) -> Style {
    match state {
        State::Held => screen::GOOD,
        State::Dead => screen::DOUBTFUL,
        State::Released | State::Settled => FAINT,
        State::Invalid => screen::WRONG,
    }
}

/// What it cost, on standard error: standard output is for the rows.
fn tell(read: &Read, complete: bool, options: &ListOptions, json: bool) {
    if json {
        let summary = json!({
            "locks": read.printed, "rowsRead": read.rows, "readUnits": read.units, "complete": complete,
        });
        return screen::tell(summary);
    }
    let Read { rows, units, printed } = read;
    screen::tell(format_args!("{FAINT}{printed} of {rows} rows, {units:.1} read units{FAINT:#}"));
    if !complete {
        let limit = if options.limit == Some(read.printed) { "--limit" } else { "--read-units" };
        screen::tell(format_args!("The list stops here, and there may be more locks: give a larger {limit}."));
    }
}
