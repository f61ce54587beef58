//! `break`: releases a lock for its holder.

use crate::arguments::BreakOptions;
use crate::confirm::confirm;
use crate::connection;
use crate::exit::Failure;
use crate::row::{State, work_of};
use crate::screen::{self, STRONG, named, named_key, plain};
use crate::show::of_work;
use crate::words::Said;
use lambda_lock::{LockKey, ReleaseOutcome, operator::PeekedLock};
use lambda_lock_protocol::OURS;
use serde_json::json;
use std::process::ExitCode;
use std::time::SystemTime;

const DONE: &str = "the lock was broken";

pub(crate) async fn break_lock(connection: &connection::Options, options: &BreakOptions) -> Result<ExitCode, Failure> {
    let (locks, json) = (connection.open().await?, options.decision.format.json);
    let key = options.key.key();
    connection.check_sort_key(&key)?;
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
    let is_broken_for_this =
        |lock: &PeekedLock| lock.broken && lock.break_reason.as_ref() == Some(&options.decision.reason);
    // The break of a row of another client writes a version of its own. The response of an earlier one may have been lost. A break
    // of one of ours leaves the version, so the same reason shows nothing: another grant was broken for it.
    let was_broken_for_this = |lock: &PeekedLock| !options.seen.starts_with(OURS) && is_broken_for_this(lock);
    let operator = locks.operator();
    let Some(lock) = operator.peek(key.clone()).await? else { return Err(missing().await) };
    // Nobody has to be asked where nothing is left to break.
    let is_asked = !options.decision.yes && !lock.released;
    if lock.version == options.seen {
        if is_asked {
            ask(connection, &lock, &shown)?;
            let now = operator.peek(key.clone()).await?;
            if !now.is_some_and(|now| is_as_shown(&lock, &now)) {
                return Err(changed());
            }
        }
        match operator.break_lock(key.clone(), &lock, &options.decision.reason).await? {
            ReleaseOutcome::Released => {}
            ReleaseOutcome::AlreadyGone => match operator.peek(key.clone()).await? {
                None => return Err(missing().await),
                Some(lock) if was_broken_for_this(&lock) => {}
                Some(_) => return Err(changed()),
            },
        }
    } else if !was_broken_for_this(&lock) {
        return Err(changed());
    }
    // Who cannot read it now is told of the break alone.
    let row = operator.peek(key.clone()).await;
    let is_of_another = |lock: &PeekedLock| lock.version == options.seen && !is_broken_for_this(lock);
    if is_asked && row.as_ref().is_ok_and(|row| row.as_ref().is_some_and(is_of_another)) {
        return Err(changed());
    }
    let now = match &row {
        Ok(Some(lock)) if !lock.released => Now::Held,
        Ok(Some(lock)) if lock.freeze_reason.is_some() => Now::Frozen,
        Ok(_) => Now::Free,
        Err(error) => Now::NotRead(screen::plain(&error.to_string())),
    };
    let said = if json { now.as_json(&key)? } else { now.as_text(&shown, work_of(key.key()).is_some()) };
    screen::print_done(&said, DONE)?;
    Ok(ExitCode::SUCCESS)
}

/// What the lock was when it was read after the break.
enum Now {
    Free,
    Frozen,
    /// It has been acquired since.
    Held,
    /// It could not be read, so nobody is told that it is free.
    NotRead(String),
}

impl Now {
    fn as_json(&self, key: &LockKey) -> Result<String, Failure> {
        let free = match self {
            Now::Free => Some(true),
            Now::Frozen | Now::Held => Some(false),
            Now::NotRead(_) => None,
        };
        let mut said = json!({ "free": free });
        if matches!(self, Now::Frozen) {
            said["frozen"] = true.into();
        }
        Ok(screen::json_of(key, said)?)
    }

    fn as_text(&self, shown: &str, is_work: bool) -> String {
        let said = Said::new(State::Released, matches!(self, Now::Frozen));
        let is = match self {
            Now::Free => format!("is {}.", said.is()),
            Now::Frozen => format!("is {}. {}", said.is(), said.while_frozen().unwrap_or_default()),
            Now::Held => "was broken, and has been acquired since.".to_owned(),
            Now::NotRead(why) => format!("was broken. It could not be read since: {why}."),
        };
        let next = if is_work { " The next call does the work again." } else { "" };
        let holder = if matches!(self, Now::Held) { "earlier holder" } else { "holder" };
        format!("{STRONG}{shown}{STRONG:#} {is}{next} Its {holder} may still run until its next renewal.")
    }
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
