//! `freeze` and `thaw`: nobody but its holder is granted a lock for a while.

use crate::arguments::{FreezeOptions, ThawOptions};
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::work_of;
use crate::screen::{self, STRONG, plain};
use lambda_lock::{LockKey, ThawOutcome};
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

pub(crate) async fn freeze(connection: &connection::Options, options: &FreezeOptions) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let key = options.key.key();
    let shown = plain(&key.to_string());
    let of_work = prefix_of_work(&key);
    let row = locks.peek(key.clone()).await?;
    if let (None, Some(prefix)) = (&row, of_work) {
        return Err(Failure::Usage(format!(
            "{shown} has no row, and is the key of idempotent work of a client with the prefix {}/, which cannot be \
             frozen: if it is a lock, acquire it once before",
            plain(prefix)
        )));
    }
    let is_new = row.is_none();
    if !options.decision.yes {
        let holder = match row {
            Some(lock) if !lock.released => format!("its holder {} may finish", plain(&lock.holder)),
            Some(_) => "nobody holds it".to_owned(),
            None => "it has no row yet, so this makes one".to_owned(),
        };
        confirm(&format!(
            "This freezes {STRONG}{shown}{STRONG:#} of table {}: {holder}, and nobody else is granted it until it is \
             thawed.",
            connection.table()
        ))?;
    } else if is_new && work_of(key.key()).is_none() {
        // It may be a mistyped key.
        screen::tell(format_args!("{STRONG}{shown}{STRONG:#} has no row yet, so this makes one."));
    }
    locks.freeze(key.clone(), &options.decision.reason).await?;
    let mut out = anstream::stdout();
    if options.decision.format.json {
        writeln!(out, "{}", screen::json(&json!({ "key": key.key(), "frozen": true }))?)?;
    } else {
        let style = screen::DOUBTFUL;
        writeln!(
            out,
            "{STRONG}{shown}{STRONG:#} is {style}frozen{style:#}. Nobody but its holder is granted it until it is thawed."
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The prefix of the client whose idempotent work has this key, without its slash. The crate only knows the prefix of its own
/// client, so it would make a lock where the record of that work belongs.
fn prefix_of_work(key: &LockKey) -> Option<&str> {
    work_of(key.key())?.0.strip_suffix('/')
}

pub(crate) async fn thaw(connection: &connection::Options, options: &ThawOptions) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let key = options.key.key();
    let shown = plain(&key.to_string());
    if !options.yes {
        let lock = locks.peek(key.clone()).await?;
        let why =
            lock.and_then(|lock| lock.freeze_reason).map(|reason| format!(", frozen because: {}", plain(&reason)));
        confirm(&format!(
            "This thaws {STRONG}{shown}{STRONG:#} of table {}{}. Callers are granted it again.",
            connection.table(),
            why.unwrap_or_default()
        ))?;
    }
    let was_frozen = locks.thaw(key.clone()).await? == ThawOutcome::Thawed;
    let mut out = anstream::stdout();
    if options.format.json {
        let thawed = json!({ "key": key.key(), "frozen": false, "wasFrozen": was_frozen });
        writeln!(out, "{}", screen::json(&thawed)?)?;
    } else if was_frozen {
        let style = screen::GOOD;
        writeln!(out, "{STRONG}{shown}{STRONG:#} is {style}thawed{style:#}. Callers are granted it again.")?;
    } else {
        writeln!(out, "{STRONG}{shown}{STRONG:#} was not frozen.")?;
    }
    Ok(ExitCode::SUCCESS)
}
