//! `break`: releases a lock for its holder.

use crate::arguments::BreakOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::State;
use crate::screen::{self, STRONG, plain};
use lambda_lock::ReleaseOutcome;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

pub(crate) async fn break_lock(connection: &connection::Options, options: &BreakOptions) -> Result<ExitCode, Failure> {
    let (locks, json) = (connection.open().await?, options.decision.format.json);
    let key = options.key.key();
    let shown = plain(&key.to_string());
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
        match (state, &lock.freeze_reason) {
            (_, Some(reason)) => screen::tell(format!(
                "It is frozen: nobody is granted it until it is thawed, whether it is broken or not. The reason: {}",
                plain(reason)
            )),
            (State::Dead, None) => screen::tell("Its lease has ended: the next acquire takes it over without a break."),
            _ => {}
        }
        let holder = plain(&lock.holder);
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
    // Nobody holds it any more, but a frozen lock is not free. Who may not read it is told of the break alone.
    let broken = locks.peek(key.clone()).await.ok().flatten();
    let is_frozen = broken.is_some_and(|lock| lock.freeze_reason.is_some());
    let mut out = anstream::stdout();
    if json {
        let mut said = json!({"key": key.key(), "free": !is_frozen});
        if is_frozen {
            said["frozen"] = true.into();
        }
        writeln!(out, "{}", screen::json(&said)?)?;
    } else if is_frozen {
        let style = screen::DOUBTFUL;
        writeln!(
            out,
            "{STRONG}{shown}{STRONG:#} is {style}frozen{style:#}: nobody is granted it until it is thawed. Its holder may still \
             run until its next renewal."
        )?;
    } else {
        let style = screen::GOOD;
        writeln!(
            out,
            "{STRONG}{shown}{STRONG:#} is {style}free{style:#}. Its holder may still run until its next renewal."
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
