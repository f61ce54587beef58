//! `freeze` and `thaw`: nobody but its holder is granted a lock for a while.

use crate::arguments::{FreezeOptions, ThawOptions};
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::{prefix_of_work, work_of};
use crate::screen::{self, STRONG, named, named_key, plain, quoted};
use lambda_lock::{
    Error, LockClient, LockKey,
    operator::{PeekedLock, ThawOutcome},
};
use serde_json::json;
use std::process::ExitCode;

pub(crate) async fn freeze(connection: &connection::Options, options: &FreezeOptions) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let key = options.key.key();
    connection.check_sort_key(&key)?;
    // Nobody has to be asked again where nobody was.
    loop {
        let row = about_to_freeze(connection, options, &locks, &key).await?;
        match locks.operator().freeze_seen(key.clone(), row.as_ref(), &options.decision.reason).await? {
            true => break,
            false if options.decision.yes => {}
            false => return Err(changed(&key)),
        }
    }
    let said = match options.decision.format.json {
        true => screen::json_of(&key, json!({ "frozen": true }))?,
        false => frozen(&key, locks.operator().peek(key.clone()).await),
    };
    screen::print_done(&said, "the lock was frozen")?;
    Ok(ExitCode::SUCCESS)
}

/// What is said of a frozen lock, as it is now. Somebody may have been granted it just before.
fn frozen(key: &LockKey, now: Result<Option<PeekedLock>, Error>) -> String {
    let (style, shown) = (screen::DOUBTFUL, named_key(key));
    let who = match now {
        Ok(Some(lock)) if !lock.released => "Nobody but its holder is",
        Ok(_) => "Nobody is",
        Err(_) => "Whether somebody holds it cannot be read: see show. Nobody else is",
    };
    format!("{STRONG}{shown}{STRONG:#} is {style}frozen{style:#}. {who} granted it until it is thawed.")
}

fn changed(key: &LockKey) -> Failure {
    Failure::Lost(format!("\"{key}\" changed since it was shown, and was left alone: look at it again with show"))
}

/// Reads the row, says what a freeze means for it, and asks.
async fn about_to_freeze(
    connection: &connection::Options,
    options: &FreezeOptions,
    locks: &LockClient,
    key: &LockKey,
) -> Result<Option<PeekedLock>, Failure> {
    let shown = named_key(key);
    let row = locks.operator().peek(key.clone()).await?;
    if let (None, Some(prefix)) = (&row, prefix_of_work(key)) {
        return Err(Failure::Usage(format!(
            "{shown} has no row, and is the key of idempotent work of a client with the prefix {}/, which cannot be \
             frozen: if it is a lock, acquire it once before",
            plain(prefix)
        )));
    }
    let before = row.as_ref().and_then(|lock| lock.freeze_reason.as_deref());
    if let Some(before) = before.filter(|before| *before != options.decision.reason) {
        screen::tell(format_args!(
            "{STRONG}{shown}{STRONG:#} is frozen already, and gets the new reason instead of this one: {}",
            plain(before)
        ));
    }
    if !options.decision.yes {
        let who = match &row {
            Some(lock) if !lock.released => {
                format!("its holder {} may finish, and nobody else is", named(&lock.holder))
            }
            Some(_) => "nobody holds it, and nobody is".to_owned(),
            None => "it has no row yet, so this makes one, and nobody is".to_owned(),
        };
        confirm(&format!(
            "This freezes {STRONG}{shown}{STRONG:#} of table {}: {who} granted it until it is thawed.",
            connection.table()
        ))?;
    } else if row.is_none() && work_of(key.key()).is_none() {
        // It may be a mistyped key.
        screen::tell(format_args!("{STRONG}{shown}{STRONG:#} has no row yet, so this makes one."));
    }
    Ok(row)
}

pub(crate) async fn thaw(connection: &connection::Options, options: &ThawOptions) -> Result<ExitCode, Failure> {
    let locks = connection.open().await?;
    let key = options.key.key();
    connection.check_sort_key(&key)?;
    let shown = named_key(&key);
    let thawed = if options.yes {
        Some(locks.operator().thaw(key.clone()).await?)
    } else {
        let row = locks.operator().peek(key.clone()).await?;
        let is = match row.as_ref().and_then(|lock| lock.freeze_reason.as_ref()) {
            Some(reason) => format!("frozen because: {}", quoted(reason)),
            None => "which is not frozen".to_owned(),
        };
        confirm(&format!(
            "This thaws {STRONG}{shown}{STRONG:#} of table {}, {is}. Callers are granted it again.",
            connection.table()
        ))?;
        locks.operator().thaw_seen(key.clone(), row.as_ref()).await?
    };
    let was_frozen = thawed.ok_or_else(|| changed(&key))? == ThawOutcome::Thawed;
    let style = screen::GOOD;
    let said = match was_frozen {
        _ if options.format.json => screen::json_of(&key, json!({ "frozen": false, "wasFrozen": was_frozen }))?,
        true => format!("{STRONG}{shown}{STRONG:#} is {style}thawed{style:#}. Callers are granted it again."),
        false => format!("{STRONG}{shown}{STRONG:#} was not frozen."),
    };
    screen::print_done(&said, if was_frozen { "the lock was thawed" } else { "the lock was not frozen" })?;
    Ok(ExitCode::SUCCESS)
}
