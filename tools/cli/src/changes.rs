//! What happened to a lock between two images of its row.

use crate::row::epoch_millis;
use lambda_lock::{LockKey, operator::PeekedLock};
use lambda_lock_timeline::{Change, Event};
use std::time::SystemTime;

/// What a row was.
#[derive(Debug)]
pub(crate) enum Image {
    /// There was none.
    Missing,
    Lock(Box<PeekedLock>),
    /// The record of idempotent work that has an outcome.
    Settled,
    /// No lock record.
    Other,
}

/// What lies between two images.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    OneWrite,
    /// Whatever happened between two looks.
    Looks,
}

/// What is known to have happened, in this order.
pub(crate) fn between(key: &LockKey, before: &Image, after: &Image, between: Between, now: SystemTime) -> Vec<Event> {
    let (changed, frozen) = match (before, after) {
        (Image::Lock(lock), Image::Missing) => (Some(event(key, Change::Deleted, lock, now)), None),
        (Image::Lock(lock), Image::Settled) => (Some(event(key, Change::Settled, lock, now)), None),
        (Image::Settled, Image::Lock(lock)) if lock.released => (Some(event(key, Change::Reset, lock, now)), None),
        (before, Image::Lock(lock)) => {
            let before = if let Image::Lock(before) = before { Some(&**before) } else { None };
            // When the writer says that it wrote. Of peers' rows it is known only when it was seen.
            let at = if lock.released { lock.lease_ends_at } else { lock.renewed_at };
            let change = change(before, lock, between).map(|change| event(key, change, lock, at.unwrap_or(now)));
            (change, freeze(before, lock, between).map(|change| of_freeze(key, change, lock, now)))
        }
        _ => (None, None),
    };
    changed.into_iter().chain(frozen).collect()
}

fn change(before: Option<&PeekedLock>, lock: &PeekedLock, between: Between) -> Option<Change> {
    Some(match before {
        Some(before) if before.version == lock.version && before.released == lock.released => return None,
        // A row that was made to be frozen.
        None if lock.released && lock.freeze_reason.is_some() => return None,
        _ if lock.released && lock.broken => Change::Broken,
        _ if lock.released => Change::Released,
        Some(before) if !before.released => {
            let is_same = before.holder == lock.holder && before.fencing_token == lock.fencing_token;
            // Between two looks the lock may have been released. Not so, as far as clocks tell, if its lease was over.
            let was_over = before.lease_ends_at.zip(lock.renewed_at).is_some_and(|(end, granted)| end < granted);
            match between {
                _ if is_same => Change::Renewed,
                Between::Looks if !was_over => Change::Granted,
                _ => Change::TakenOver,
            }
        }
        _ => Change::Granted,
    })
}

/// A freeze or a thaw leaves the version alone, and may be between two looks beside anything else.
fn freeze(before: Option<&PeekedLock>, lock: &PeekedLock, between: Between) -> Option<Change> {
    let (was, at) = before.map_or((None, None), |before| (before.freeze_reason.as_ref(), before.freeze_changed_at));
    let is_new = was != lock.freeze_reason.as_ref() || at != lock.freeze_changed_at;
    match (was, &lock.freeze_reason) {
        _ if !is_new => None,
        (_, Some(_)) => Some(Change::Frozen),
        (Some(_), None) => Some(Change::Thawed),
        // A thaw of a lock that was not frozen, or the end of a freeze that nobody saw.
        (None, None) => (before.is_some() && between == Between::Looks).then_some(Change::Thawed),
    }
}

/// A freeze or a thaw, at the time that the row has for it.
pub(crate) fn of_freeze(key: &LockKey, change: Change, lock: &PeekedLock, now: SystemTime) -> Event {
    event(key, change, lock, lock.freeze_changed_at.unwrap_or(now))
}

pub(crate) fn event(key: &LockKey, change: Change, lock: &PeekedLock, at: SystemTime) -> Event {
    Event {
        at: epoch_millis(at),
        key: key.to_string(),
        change,
        holder: lock.holder.clone(),
        fencing_token: lock.fencing_token,
        lease_ends_at: lock.lease_ends_at.map(epoch_millis),
        reason: match change {
            Change::Broken => lock.break_reason.clone(),
            Change::Frozen => lock.freeze_reason.clone(),
            _ => None,
        },
    }
}
