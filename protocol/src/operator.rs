//! What an operator decides: to release a lock for its holder, to grant it to nobody else for a while, or to allow work again
//! that failed for good.
//!
//! # Break
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
//! A Reset has the same tree, and so has each Freeze and Thaw, which then reads the row again.
//!
//! A renewal and a Break are conditional writes of one row. Whichever comes first changes what the other requires, so never
//! are both applied.
//!
//! # Freeze and Thaw
//!
//! The holder of a frozen lock may finish.
//!
//! ```text
//! Peek
//!  ├ it is no lock record, or no later
//!  │ change could follow .................. report the row
//!  ├ not what the operator has seen ....... left alone, or unknown, if an earlier attempt had no response
//!  ├ to thaw, and there is no row ......... not frozen
//!  └ anything else ........................ Freeze, or Thaw, after exactly the change that was seen
//!      ├ applied .......................... done
//!      ├ condition failed
//!      │   ├ the row shows this change .... done: an earlier copy of it was applied
//!      │   └ anything else ................ Peek again
//!      ├ throttled, or no response ........ the same write again
//!      └ rejected ......................... rejected, or unknown if an earlier attempt had no response
//! ```
//!
//! Once a change had no response, a failure of a later request is reported as unknown.
//!
//! Each change writes its time, which is larger than that of the change before, and which stays in the row. So a late copy
//! of a freeze is refused after the thaw, and a late copy of a thaw after the next freeze. That is why a lock that is as it
//! is wanted is written all the same: an earlier change without a response may still arrive. A grant, a renewal and a
//! release leave both attributes alone, and a frozen row is not deleted.
//!
//! # Reset
//!
//! ```text
//! Peek
//!  ├ failed for good ... Reset (exactly that record), as a Break is sent
//!  └ anything else ..... left alone
//! ```
//!
//! The record goes back to what it was before it was settled, and is released. So the next attempt is granted as after a
//! release, with a larger token, and what the failed attempt still sends is refused as after a release.

use super::call::Call;
use super::failure::Failure;
use super::key::LockKey;
use super::port::Port;
use super::read::{look, row};
use super::record::{InvalidRecord, Record};
use super::reply::Written;
use super::request::{Action, FrozenRow, Request, StoredOutcome};
use super::schema::{self, Schema};
use super::settings::Settings;
use super::value::Item;
use super::version::{Grant, OURS, SETTLED, Stamp, Version, before_settled};
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
    let action = |now| {
        let (version, reason) = (new.clone(), reason.to_owned());
        Action::Break { seen: seen.to_owned(), version, ends_at_ms: end(now, seen), reason }
    };
    let is_free = |row: Option<&Item>| {
        let released = row.filter(|row| row.get(schema::RELEASED).is_some());
        let version = released.and_then(|row| row.text(schema::VERSION));
        version.is_some_and(|version| version == seen || Some(version) == new.as_deref())
    };
    let applied = single_write(port, key, action, is_free).await?;
    Ok(if applied { Broken::Free } else { Broken::Changed })
}

/// The end of a lease that somebody else ends: after the stamp of its version, as a release writes it, so that a late copy of the
/// grant's own Claim is refused although this clock is behind.
fn end(now: u64, version: &str) -> u64 {
    now.max(Version::parse(version).map_or(0, |version| version.stamp.millis() + 1))
}

/// Freezes the lock for this reason, if its row is as expected. Returns whether it was.
pub async fn freeze(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
    reason: &str,
    is_expected: impl Fn(Option<&Record>) -> bool,
) -> Result<bool, Failure> {
    let mut call = Call::new();
    loop {
        let (seen, at) = row_to_change(port, &mut call, settings, key, Record::read_to_hold).await?;
        if !is_expected(seen.as_ref()) {
            return if call.is_unknown() { Err(Failure::OutcomeUnknown) } else { Ok(false) };
        }
        let row = match &seen {
            Some(record) => FrozenRow::Seen(record.freeze_changed_at),
            None => FrozenRow::Missing(Version {
                grant: Grant::from_random(port.random()),
                stamp: Stamp::after(None, at, port.random_u64()),
            }),
        };
        let action = |_| Action::Freeze { row: row.clone(), at, reason: reason.to_owned() };
        if exactly(port, &mut call, key, action, |row| shows(row, at, Some(reason))).await? {
            return Ok(true);
        }
    }
}

/// Thaws the lock, if its row is as expected. Returns whether it was frozen, and `None` where the row is another.
pub async fn thaw(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
    is_expected: impl Fn(Option<&Record>) -> bool,
) -> Result<Option<bool>, Failure> {
    let (mut call, mut was_frozen) = (Call::new(), false);
    loop {
        // A thaw writes no TTL, so it does not matter whose stands in the row.
        let (record, at) = row_to_change(port, &mut call, settings, key, Record::read).await?;
        if !is_expected(record.as_ref()) {
            return if call.is_unknown() { Err(Failure::OutcomeUnknown) } else { Ok(None) };
        }
        let Some(record) = record else {
            return if call.is_unknown() { Err(Failure::OutcomeUnknown) } else { Ok(Some(false)) };
        };
        was_frozen |= record.freeze_reason.is_some();
        let seen = record.freeze_changed_at;
        if exactly(port, &mut call, key, |_| Action::Thaw { seen, at }, |row| shows(row, at, None)).await? {
            return Ok(Some(was_frozen));
        }
    }
}

/// Returns the row, and the time of the change that follows.
async fn row_to_change(
    port: &mut impl Port,
    call: &mut Call,
    settings: &Settings,
    key: &LockKey,
    read: fn(Item, &Schema) -> Result<Record, InvalidRecord>,
) -> Result<(Option<Record>, u64), Failure> {
    let (_, row) = look(port, call, key).await?;
    changed(port, settings, key, row, read).map_err(|invalid| call.fail(invalid.into()))
}

/// Reads the row as a record that may be changed. Returns also the time of the change.
fn changed(
    port: &mut impl Port,
    settings: &Settings,
    key: &LockKey,
    row: Option<Item>,
    read: fn(Item, &Schema) -> Result<Record, InvalidRecord>,
) -> Result<(Option<Record>, u64), InvalidRecord> {
    if row.as_ref().is_some_and(|row| row.get(schema::KEPT_UNTIL).is_some()) {
        let found = "of idempotent work, which cannot be frozen".to_owned();
        return Err(InvalidRecord::of(key, &settings.schema, schema::KEPT_UNTIL, found));
    }
    let record = row.map(|row| read(row, &settings.schema)).transpose()?;
    let before = record.as_ref().and_then(|record| record.freeze_changed_at);
    let at = port.now().wall.written.max(before.map_or(0, |before| before.saturating_add(1)));
    // It leaves room for one after it.
    if at == u64::MAX {
        let found = format!("{}, but must be smaller, so that later times can follow", before.unwrap_or_default());
        return Err(InvalidRecord::of(key, &settings.schema, schema::FREEZE_CHANGED_AT, found));
    }
    Ok((record, at))
}

/// Whether the row shows that this change was the last one.
fn shows(row: Option<&Item>, at: u64, reason: Option<&str>) -> bool {
    let Some(row) = row else { return false };
    row.number(schema::FREEZE_CHANGED_AT) == Some(at) && row.text(schema::FREEZE_REASON) == reason
}

/// The result of resetting idempotent work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkReset {
    /// The next attempt may begin.
    Open,
    /// The record does not say that the work failed for good, or it changed meanwhile.
    NotFailed,
}

/// Opens the work again if its record says that it failed for good, and the row is as expected.
pub async fn reset(
    port: &mut impl Port,
    key: &LockKey,
    reason: &str,
    is_expected: impl Fn(&Item) -> bool,
) -> Result<WorkReset, Failure> {
    let row = row(port, key).await?.filter(is_expected);
    let failed = row.as_ref().filter(|row| row.text(schema::STATE) == Some(StoredOutcome::FAILED));
    let seen = failed.and_then(|row| row.text(schema::VERSION));
    let Some((seen, version)) = seen.and_then(|seen| Some((seen, before_settled(seen)?))) else {
        return Ok(WorkReset::NotFailed);
    };
    let action = |now| Action::Reset {
        seen: seen.to_owned(),
        version: version.clone(),
        ends_at_ms: end(now, &version),
        reason: reason.to_owned(),
    };
    // An earlier copy of this write was applied.
    let is_done = |row: Option<&Item>| row.and_then(|row| row.text(schema::VERSION)) == Some(version.as_str());
    let is_open = single_write(port, key, action, is_done).await?;
    Ok(if is_open { WorkReset::Open } else { WorkReset::NotFailed })
}

/// Sends the one write of a call, of exactly one version. Returns whether the row has what was wanted.
async fn single_write(
    port: &mut impl Port,
    key: &LockKey,
    action: impl Fn(u64) -> Action,
    is_done: impl Fn(Option<&Item>) -> bool,
) -> Result<bool, Failure> {
    let mut call = Call::new();
    let applied = exactly(port, &mut call, key, action, is_done).await?;
    if call.is_unknown() && !applied { Err(Failure::OutcomeUnknown) } else { Ok(applied) }
}

/// Sends a write of exactly one version, until it is known what became of it. Returns whether the row has what was wanted:
/// the write was applied, or the row that refused it shows that.
async fn exactly(
    port: &mut impl Port,
    call: &mut Call,
    key: &LockKey,
    action: impl Fn(u64) -> Action,
    is_done: impl Fn(Option<&Item>) -> bool,
) -> Result<bool, Failure> {
    loop {
        let now = call.ready(port).await?;
        let (_, reply) = port.write(&now, Request::alone(key.clone(), action(now.wall.written))).await;
        match reply {
            Ok(Written::Applied(_)) => return Ok(true),
            Ok(Written::Refused(row)) => {
                call.answered();
                call.follow_up();
                return Ok(is_done(row.as_ref()));
            }
            Err(fault) => call.write_failed(fault)?,
        }
    }
}
