//! What happened to a lock between two versions of its row.

use crate::row::{ONCE, epoch_millis};
use lambda_lock::{LockKey, PeekedLock};
use lambda_lock_timeline::{Change, Event};
use std::time::SystemTime;

/// What happened between two looks at a row, or two images of it. `None` where nothing did.
pub(crate) fn between(
    key: &LockKey,
    before: Option<&PeekedLock>,
    after: Option<&PeekedLock>,
    now: SystemTime,
) -> Option<Event> {
    let Some(lock) = after else {
        let change = if key.key().starts_with(ONCE) { Change::Settled } else { Change::Deleted };
        return before.map(|lock| event(key, change, lock, now));
    };
    let change = match before {
        Some(before) if before.version == lock.version && before.released == lock.released => {
            return (before.freeze_reason != lock.freeze_reason).then(|| freeze(key, lock, now));
        }
        // A row that was made to be frozen.
        None if lock.released && lock.freeze_reason.is_some() => return Some(freeze(key, lock, now)),
        Some(before) if lock.released => {
            let is_broken = !before.released && lock.break_reason.is_some() && lock.break_reason != before.break_reason;
            if is_broken { Change::Broken } else { Change::Released }
        }
        None if lock.released => Change::Released,
        Some(before) if !before.released => {
            let same = before.holder == lock.holder && before.fencing_token == lock.fencing_token;
            if same { Change::Renewed } else { Change::TakenOver }
        }
        _ => Change::Granted,
    };
    // When the writer says that it wrote. Of peers' rows it is known only when it was seen.
    let at = if lock.released { lock.lease_ends_at } else { lock.renewed_at };
    Some(event(key, change, lock, at.unwrap_or(now)))
}

fn freeze(key: &LockKey, lock: &PeekedLock, now: SystemTime) -> Event {
    let change = if lock.freeze_reason.is_some() { Change::Frozen } else { Change::Thawed };
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
