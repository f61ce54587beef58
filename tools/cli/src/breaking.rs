//! `break`: releases a lock for its holder.

use crate::arguments::BreakOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::State;
use crate::screen::{self, STRONG, named, named_key, plain};
use crate::words::Said;
use lambda_lock::ReleaseOutcome;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

pub(crate) async fn break_lock(connection: &connection::Options, options: &BreakOptions) -> Result<ExitCode, Failure> {
    let (locks, json) = (connection.open().await?, options.decision.format.json);
    let key = options.key.key();
    let shown = named_key(&key);
    let missing =
        || Failure::Lost(format!("\"{key}\" has no row, so there is nothing to break: look at its key with ls"));
    let changed = || {
        Failure::Lost(format!("\"{key}\" changed since it was seen, and was left alone: look at it again with show"))
    };
    if !options.decision.yes {
        let lock = locks.peek(key.clone()).await?.ok_or_else(missing)?;
        if lock.version != options.seen {
            return Err(changed());
        }
        let state = State::of(&lock, SystemTime::now(), connection.max_clock_skew());
        if let Some((who, reason)) = Said::of(&lock, state).while_frozen.zip(lock.freeze_reason.as_ref()) {
            screen::tell(format!("{who} It stays frozen when it is broken. It is frozen, because: {}", plain(reason)));
        } else if state == State::Dead {
            screen::tell("Its lease has ended: the next acquire takes it over without a break.");
        }
        let holder = named(&lock.holder);
        confirm(&format!(
            "This releases {STRONG}{shown}{STRONG:#} of table {} for its holder {holder}. The holder may still run: what it \
             writes from then on must be fenced.",
            connection.table()
        ))?;
    }
    match locks.break_lock(key.clone(), &options.seen, &options.decision.reason).await? {
        ReleaseOutcome::Released => {}
        ReleaseOutcome::AlreadyGone if locks.peek(key.clone()).await?.is_none() => return Err(missing()),
        ReleaseOutcome::AlreadyGone => return Err(changed()),
    }
    // Who may not read it is told of the break alone.
    let row = locks.peek(key.clone()).await.ok().flatten();
    let is_frozen = row.as_ref().is_some_and(|lock| lock.freeze_reason.is_some());
    let is_held = row.is_some_and(|lock| !lock.released);
    let mut out = anstream::stdout();
    if json {
        let mut said = json!({"key": key.key(), "free": !is_frozen && !is_held});
        if is_frozen {
            said["frozen"] = true.into();
        }
        writeln!(out, "{}", screen::json(&said)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let said = Said::new(State::Released, is_frozen);
    let is = match said.while_frozen {
        _ if is_held => "was broken, and has been acquired since.".to_owned(),
        Some(who) => format!("is {}. {who}", said.is()),
        None => format!("is {}.", said.is()),
    };
    let holder = if is_held { "earlier holder" } else { "holder" };
    writeln!(out, "{STRONG}{shown}{STRONG:#} {is} Its {holder} may still run until its next renewal.")?;
    Ok(ExitCode::SUCCESS)
}
