//! Break: releases a lock for its holder, because an operator decides so.
//!
//! ```text
//! Break (exactly the version that the operator saw held)
//!  ├ applied .............................. broken
//!  ├ condition failed, with the row
//!  │   ├ still that version, or the one that
//!  │   │ this call gave a peer's row, and it
//!  │   │ is released ...................... free: its holder released it, or an earlier Break of this call did
//!  │   └ anything else .................... renewed or granted since: left alone, or unknown, as below
//!  ├ condition failed, without a row ...... left alone, or unknown, as below
//!  ├ throttled ............................ pause, then Break again
//!  ├ rejected ............................. rejected, or unknown if an earlier attempt had no response
//!  └ no response .......................... Break again
//! ```
//!
//! A row that was changed since does not show whether an earlier attempt without a response was applied before that change.
//!
//! [Reset](super::reset) has the same tree, and so has each change of [freeze](super::freeze), which then reads the row again.
//!
//! A renewal and a Break are conditional writes of one row. Whichever comes first changes what the other requires, so never
//! are both applied.

use super::backoff::Retry;
use super::failure::Failure;
use super::key::LockKey;
use super::port::{Answer, Port};
use super::request::{Action, Request};
use super::schema;
use super::value::{Item, Value};
use super::version::{OURS, SETTLED};
use uuid::Uuid;

/// The result of breaking a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The lock is free: it was broken, or released meanwhile.
    Free,
    /// The row no longer has the version that was seen.
    Changed,
}

/// Releases this version, and no other.
pub async fn break_lock(port: &mut impl Port, key: &LockKey, seen: &str, reason: &str) -> Result<Broken, Failure> {
    if seen.starts_with(SETTLED) {
        // Nobody holds work that has its outcome.
        return Ok(Broken::Changed);
    }
    // A peer looks at nothing but the version, and renews a row that says released. No version of a peer is one of ours.
    let new = (!seen.starts_with(OURS)).then(|| Uuid::from_bytes(port.random()).to_string());
    let action = |ends_at_ms| {
        let (seen, version, reason) = (seen.to_owned(), new.clone(), reason.to_owned());
        Action::Break { seen, version, ends_at_ms, reason }
    };
    let is_free = |row: Option<&Item>| {
        let versions = [Some(seen), new.as_deref()];
        versions.into_iter().flatten().any(|version| meaning(row, version) == Broken::Free)
    };
    let applied = single_write(port, key, action, is_free).await?;
    Ok(if applied { Broken::Free } else { Broken::Changed })
}

/// Sends the one write of a call, of exactly one version. Returns whether the row has what was wanted.
pub(super) async fn single_write(
    port: &mut impl Port,
    key: &LockKey,
    action: impl Fn(u64) -> Action,
    is_done: impl Fn(Option<&Item>) -> bool,
) -> Result<bool, Failure> {
    let mut is_unknown = false;
    let applied = exactly(port, key, action, is_done, &mut is_unknown).await?;
    if is_unknown && !applied { Err(Failure::OutcomeUnknown) } else { Ok(applied) }
}

/// Sends a write of exactly one version, until it is known what became of it. Returns whether the row has what was wanted:
/// the write was applied, or the row that refused it shows that. `is_unknown` becomes true when an attempt has no response.
pub(super) async fn exactly(
    port: &mut impl Port,
    key: &LockKey,
    action: impl Fn(u64) -> Action,
    is_done: impl Fn(Option<&Item>) -> bool,
    is_unknown: &mut bool,
) -> Result<bool, Failure> {
    let mut retry = Retry::new();
    loop {
        let now = match retry.ready(port).await {
            Ok(now) => now,
            Err(_) if retry.was_throttled() && !*is_unknown => return Err(Failure::Throttled),
            Err(_) => return Err(Failure::OutcomeUnknown),
        };
        let (_, answer) = port.send(Request::alone(key.clone(), action(now.wall.written))).await;
        match answer {
            Answer::Applied(_) => return Ok(true),
            Answer::ConditionFailed(row) => return Ok(is_done(row.as_ref())),
            Answer::Rejected(_) if *is_unknown => return Err(Failure::OutcomeUnknown),
            Answer::Rejected(rejection) => return Err(Failure::Rejected(rejection)),
            Answer::Throttled => retry.throttled(),
            Answer::Unknown
            | Answer::InProgress
            | Answer::Cancelled(_)
            | Answer::Refused(_)
            | Answer::Found(_)
            | Answer::FoundAll(_) => {
                *is_unknown = true;
                retry.repeat();
            }
        }
    }
}

fn meaning(row: Option<&Item>, seen: &str) -> Broken {
    let has = |name| row.and_then(|row| row.get(name));
    let is_seen = matches!(has(schema::VERSION), Some(Value::S(version)) if version == seen);
    if is_seen && has(schema::RELEASED).is_some() { Broken::Free } else { Broken::Changed }
}
