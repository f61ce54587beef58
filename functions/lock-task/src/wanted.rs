//! What a caller wants to hold: a lock, one of several places, or all locks of a set.

use crate::deps::Deps;
use crate::lock::{check_key, new_key};
use lambda_lock::{LockKey, LockSet, Semaphore};
use lambda_lock_functions::{Failure, Fields};
use serde_json::Value;

/// What the caller wants to hold.
#[derive(Debug)]
pub(crate) enum Wanted {
    Lock(LockKey),
    /// One of this many places.
    Place {
        name: LockKey,
        permits: u32,
    },
    /// All of them.
    Set(Vec<LockKey>),
}

impl Wanted {
    pub(crate) fn read(fields: &mut Fields, deps: &Deps) -> Result<Self, Failure> {
        if !fields.has("keys") {
            let name = new_key(fields, deps)?;
            if !fields.has("permits") {
                return Ok(Self::Lock(name));
            }
            let permits = fields.whole_number("permits")?;
            return match u32::try_from(permits) {
                Ok(permits @ 1..=Semaphore::MAX_PLACES) => Ok(Self::Place { name, permits }),
                _ => Err(fields.malformed("permits", &format!("give a number from 1 to {}", Semaphore::MAX_PLACES))),
            };
        }
        if ["key", "sortKey", "permits"].iter().any(|other| fields.has(other)) {
            return Err(fields.malformed("keys", "give it without key, sortKey and permits"));
        }
        let keys: Vec<LockKey> = if deps.sort_key {
            let each = fields.objects("keys", "keys.")?.into_iter().map(|mut fields| {
                let key = new_key(&mut fields, deps)?;
                fields.nothing_else().map(|()| key)
            });
            each.collect::<Result<_, _>>()?
        } else {
            let Some(Value::Array(list)) = fields.take("keys") else {
                return Err(fields.malformed("keys", "give a list of texts"));
            };
            let longest = deps.longest_key();
            let each = list.into_iter().map(|key| match key {
                Value::String(key) if (1..=longest).contains(&key.len()) => {
                    check_key(fields, "keys", &key).map(|()| LockKey::from(key))
                }
                _ => Err(fields.malformed("keys", &format!("give a list of texts, each of 1 to {longest} bytes"))),
            });
            each.collect::<Result<_, _>>()?
        };
        if keys.is_empty() || keys.len() > LockSet::MAX {
            return Err(fields.malformed("keys", &format!("give 1 to {} keys", LockSet::MAX)));
        }
        Ok(Self::Set(keys))
    }

    /// The field with the number of a place, or the position of a key, in reports about several locks.
    pub(crate) fn number(&self) -> Option<&'static str> {
        match self {
            Self::Lock(_) => None,
            Self::Place { .. } => Some("place"),
            Self::Set(_) => Some("index"),
        }
    }

    /// The number of a place, or the position of a key of a set, in the field that [`number`](Wanted::number) names.
    pub(crate) fn number_of(&self, row: &LockKey, deps: &Deps) -> Option<usize> {
        match self {
            Self::Lock(_) => None,
            Self::Place { .. } => row.key().rsplit('/').next()?.parse().ok(),
            Self::Set(keys) => keys.iter().position(|key| deps.row(key) == *row),
        }
    }

    /// The key of this place, or of the lock at this position.
    pub(crate) fn key_of(&self, number: usize) -> Option<LockKey> {
        match self {
            Self::Lock(_) => None,
            Self::Place { name, .. } => {
                Some(LockKey::new(format!("{}/{number}", name.key()), name.sort_key().map(str::to_owned)))
            }
            Self::Set(keys) => keys.get(number).cloned(),
        }
    }
}
