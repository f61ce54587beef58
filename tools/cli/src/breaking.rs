//! `break`: releases a lock for its holder.

use crate::arguments::BreakOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::{State, work_of};
use crate::screen::{self, STRONG, named, named_key, plain};
use crate::show::of_work;
use crate::words::Said;
use lambda_lock::{PeekedLock, ReleaseOutcome};
use serde_json::json;
use std::process::ExitCode;
use std::time::SystemTime;

const DONE: &str = "the lock was broken";

pub(crate) async fn break_lock(connection: &connection::Options, options: &BreakOptions) -> Result<ExitCode, Failure> {
    let (locks, json) = (connection.open().await?, options.decision.format.json);
    let key = options.key.key();
    let shown = named_key(&key);
    let missing = async || {
        let why = match of_work(&locks, &key).await {
            Ok(Some(_)) => "is idempotent work that has an outcome, so there is nothing to break: look at it with show",
            _ => "has no row, so there is nothing to break: look at its key with ls",
        };
        Failure::Lost(format!("\"{key}\" {why}"))
    };
    let changed = || {
        Failure::Lost(format!("\"{key}\" changed since it was seen, and was left alone: look at it again with show"))
    };
    let mut was_asked = false;
    if !options.decision.yes {
        let Some(lock) = locks.peek(key.clone()).await? else { return Err(missing().await) };
        if lock.version != options.seen {
            return Err(changed());
        }
        // Nobody has to be asked where nothing is left to break.
        was_asked = !lock.released;
        if was_asked {
            ask(connection, &lock, &shown)?;
            let now = locks.peek(key.clone()).await?;
            if !now.is_some_and(|now| is_as_shown(&lock, &now)) {
                return Err(changed());
            }
        }
    }
    match locks.break_lock(key.clone(), &options.seen, &options.decision.reason).await? {
        ReleaseOutcome::Released => {}
        ReleaseOutcome::AlreadyGone if locks.peek(key.clone()).await?.is_none() => return Err(missing().await),
        ReleaseOutcome::AlreadyGone => return Err(changed()),
    }
    // Who may not read it is told of the break alone.
    let row = locks.peek(key.clone()).await.ok().flatten();
    let is_of_another = |lock: &PeekedLock| {
        let is_ours = lock.broken && lock.break_reason.as_ref() == Some(&options.decision.reason);
        lock.version == options.seen && !is_ours
    };
    if was_asked && row.as_ref().is_some_and(is_of_another) {
        return Err(changed());
    }
    let is_frozen = row.as_ref().is_some_and(|lock| lock.freeze_reason.is_some());
    let is_held = row.is_some_and(|lock| !lock.released);
    if json {
        let mut said = json!({"key": key.key(), "free": !is_frozen && !is_held});
        if is_frozen {
            said["frozen"] = true.into();
        }
        screen::print_done(&screen::json(&said)?, DONE)?;
        return Ok(ExitCode::SUCCESS);
    }
    let said = Said::new(State::Released, is_frozen);
    let is = match said.while_frozen() {
        _ if is_held => "was broken, and has been acquired since.".to_owned(),
        Some(who) => format!("is {}. {who}", said.is()),
        None => format!("is {}.", said.is()),
    };
    let next = if work_of(key.key()).is_some() { " The next call does the work again." } else { "" };
    let holder = if is_held { "earlier holder" } else { "holder" };
    let said = format!("{STRONG}{shown}{STRONG:#} {is}{next} Its {holder} may still run until its next renewal.");
    screen::print_done(&said, DONE)?;
    Ok(ExitCode::SUCCESS)
}

/// Says what a break means for this lock, and asks.
fn ask(connection: &connection::Options, lock: &PeekedLock, shown: &str) -> Result<(), Failure> {
    let state = State::of(lock, SystemTime::now(), connection.max_clock_skew());
    if let Some((who, reason)) = Said::of(lock, state).while_frozen().zip(lock.freeze_reason.as_ref()) {
        screen::tell(format!("{who} It stays frozen when it is broken. It is frozen, because: {}", plain(reason)));
    } else if state == State::Dead {
        screen::tell("Its lease has ended: the next acquire takes it over without a break.");
    }
    let holder = named(&lock.holder);
    confirm(&format!(
        "This releases {STRONG}{shown}{STRONG:#} of table {} for its holder {holder}. The holder may still run: what it \
         writes from then on must be fenced.",
        connection.table()
    ))
}

/// A freeze leaves the version alone, and so do a release and a break.
fn is_as_shown(shown: &PeekedLock, now: &PeekedLock) -> bool {
    let of = |lock: &PeekedLock| (lock.released, lock.broken, lock.freeze_changed_at);
    shown.version == now.version && of(shown) == of(now) && shown.freeze_reason == now.freeze_reason
}
