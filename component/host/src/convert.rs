//! Converts between the types of the WIT package and the lines of the conformance scenarios.

use crate::bindings::locks::Blocked;
use crate::bindings::types::{
    AttributeValue, ConditionCheck, DataChange, Error, ErrorKind, Held, LockKey, Observation, PeekedLock, Queueing,
    ReleaseOutcome, SavedLock,
};
use crate::lines::{self, Failure};
use serde_json::{Map, Value, json};

pub fn lock_key(key: String) -> LockKey {
    LockKey { key, sort_key: None }
}

pub fn data_change(data: Option<Vec<u8>>) -> DataChange {
    data.map_or(DataChange::Keep, DataChange::Set)
}

impl From<lines::Queueing> for Queueing {
    fn from(queueing: lines::Queueing) -> Self {
        match queueing {
            lines::Queueing::BehindSlowHolders => Self::BehindSlowHolders,
            lines::Queueing::InTurn => Self::InTurn,
            lines::Queueing::OutOfTurn => Self::OutOfTurn,
        }
    }
}

pub fn outcome(outcome: ReleaseOutcome) -> Value {
    match outcome {
        ReleaseOutcome::Released => json!("released"),
        ReleaseOutcome::AlreadyGone => json!("already-gone"),
    }
}

pub fn held(seen: Held) -> lines::Held {
    let Held { holder, lease_ends_at, retry_after, waiting, freeze_reason, observation } = seen;
    lines::Held { holder, lease_ends_at, retry_after, waiting, freeze_reason, observation: observation.into() }
}

pub fn failure(error: Error) -> Failure {
    let (kind, seen) = match error.kind {
        ErrorKind::Held(seen) => ("held", Some(held(seen))),
        ErrorKind::Lost => ("lost", None),
        ErrorKind::Unknown => ("unknown", None),
        ErrorKind::Unavailable => ("unavailable", None),
        ErrorKind::OutOfTime(_) => ("out-of-time", None),
        ErrorKind::InvalidRequest => ("invalid-request", None),
        ErrorKind::InvalidRecord => ("invalid-record", None),
        ErrorKind::Table => ("table", None),
        ErrorKind::Denied => ("denied", None),
    };
    Failure { kind, message: error.message, held: seen, blocked: Vec::new() }
}

/// Attribute values in DynamoDB's JSON. The condition of a lock has no bytes and no sets.
pub fn condition_check(check: ConditionCheck) -> Value {
    let value = |value| match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::B(_) | AttributeValue::Ns(_) | AttributeValue::Other(_) => Value::Null,
    };
    let key = check.key.into_iter().map(|attribute| (attribute.name, value(attribute.value)));
    let names = check.expression_attribute_names.into_iter().map(|each| (each.placeholder, json!(each.name)));
    let values = check.expression_attribute_values.into_iter().map(|each| (each.placeholder, value(each.value)));
    json!({
        "tableName": check.table_name,
        "key": key.collect::<Map<_, _>>(),
        "conditionExpression": check.condition_expression,
        "expressionAttributeNames": names.collect::<Map<_, _>>(),
        "expressionAttributeValues": values.collect::<Map<_, _>>(),
    })
}

pub fn row(row: PeekedLock) -> lines::Row {
    lines::Row {
        holder: row.holder,
        released: row.released,
        lease: row.lease,
        renewed_at: row.renewed_at,
        lease_ends_at: row.lease_ends_at,
        fencing_token: row.fencing_token,
        workflow: row.workflow,
        data: row.data,
        freeze_reason: row.freeze_reason,
        version: row.version,
    }
}

impl From<Blocked> for lines::Blocked {
    fn from(blocked: Blocked) -> Self {
        Self { key: blocked.key.key, held: held(blocked.held) }
    }
}

impl From<lines::Blocked> for Blocked {
    fn from(blocked: lines::Blocked) -> Self {
        let lines::Held { holder, lease_ends_at, retry_after, waiting, freeze_reason, observation } = blocked.held;
        let held = Held { holder, lease_ends_at, retry_after, waiting, freeze_reason, observation: observation.into() };
        Self { key: lock_key(blocked.key), held }
    }
}

impl From<SavedLock> for lines::SavedLock {
    fn from(saved: SavedLock) -> Self {
        let SavedLock { key, owner, version, fencing_token, lease, lease_ends_at, workflow } = saved;
        Self { key: key.key, owner, version, fencing_token, lease, lease_ends_at, workflow }
    }
}

impl From<lines::SavedLock> for SavedLock {
    fn from(saved: lines::SavedLock) -> Self {
        let lines::SavedLock { key, owner, version, fencing_token, lease, lease_ends_at, workflow } = saved;
        Self { key: lock_key(key), owner, version, fencing_token, lease, lease_ends_at, workflow }
    }
}

impl From<Observation> for lines::Observation {
    fn from(observation: Observation) -> Self {
        let Observation { version, lease, unchanged_for } = observation;
        Self { version, lease, unchanged_for }
    }
}

impl From<lines::Observation> for Observation {
    fn from(observation: lines::Observation) -> Self {
        let lines::Observation { version, lease, unchanged_for } = observation;
        Self { version, lease, unchanged_for }
    }
}
