//! Observations: what a response shows of a holder, and what a later request brings back of it.

use crate::deps::Deps;
use crate::wanted::Wanted;
use lambda_lock::{LockKey, Observation};
use lambda_lock_functions::{Failure, Fields};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// What an earlier response has shown.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Of one lock.
    pub(crate) one: Option<Observation>,
    /// Of places, or of the locks of a set.
    pub(crate) several: Vec<(LockKey, Observation)>,
    /// Whether the caller has waited since then until its time was over.
    pub(crate) has_waited: bool,
}

impl Observed {
    /// Reads the observation of an earlier response, and how long the caller has waited since. In its first loop
    /// a state machine has no observation. It sends `null`, and the waiting time is ignored.
    pub(crate) fn read(fields: &mut Fields, wanted: &Wanted, deps: &Deps) -> Result<Self, Failure> {
        let seen = fields.take("observation");
        if matches!(seen, Some(Value::Null)) {
            return match fields.take("waitedSeconds") {
                None | Some(Value::Null | Value::Number(_)) => Ok(Self::default()),
                Some(_) => Err(fields.malformed("waitedSeconds", "give a number of seconds")),
            };
        }
        let waited = fields.optional_seconds("waitedSeconds")?;
        let (seen, waited) = match (seen, waited) {
            (None, None) => return Ok(Self::default()),
            (None, Some(_)) => {
                return Err(fields.malformed("waitedSeconds", "it needs observation in the same request"));
            }
            (Some(_), None) => {
                return Err(fields.malformed("observation", "it needs waitedSeconds in the same request"));
            }
            (Some(seen), Some(waited)) => (seen, waited),
        };
        let observed = match (wanted, seen) {
            (Wanted::Lock(key), Value::Object(seen)) => {
                let has_waited = !waited.is_zero();
                one(key, seen, waited, deps).map(|one| Self { one: Some(one), several: Vec::new(), has_waited })
            }
            (Wanted::Place { .. } | Wanted::Set(_), Value::Array(list)) => {
                let each = list.into_iter().map(|seen| one_of_several(wanted, seen, waited, deps));
                each.collect::<Option<Vec<_>>>()
                    .map(|several| Self { several: several.into_iter().flatten().collect(), ..Self::default() })
            }
            _ => None,
        };
        observed.ok_or_else(|| fields.malformed("observation", "send it exactly as it was returned"))
    }
}

/// The observation of a lock, as a response has it.
pub(crate) fn handed_out(row: &LockKey, observation: &Observation, deps: &Deps) -> Option<Value> {
    let mut json = serde_json::to_value(observation).ok()?;
    if let Some(at) = deps.trust.handed_out_at() {
        json["at"] = at.into();
        json["hmac"] = deps.trust.hmac(|| content(row, observation, Some(at))).into();
    }
    Some(json)
}

/// Reads the observation of this lock. `None` if no response of ours had it.
fn one(key: &LockKey, mut seen: Map<String, Value>, waited: Duration, deps: &Deps) -> Option<Observation> {
    let at = seen.remove("at").map(|at| at.as_u64()).map_or(Some(None), |at| at.map(Some))?;
    let hmac = seen.remove("hmac");
    let observation: Observation = serde_json::from_value(Value::Object(seen)).ok()?;
    let hmac = hmac.as_ref().and_then(Value::as_str);
    deps.trust.verify(|| content(&deps.row(key), &observation, at), hmac).ok()?;
    let observation = deps.trust.observed(observation, hmac);
    Some(observation.and_waited(deps.trust.waited(waited, at)))
}

/// Reads the observation of a place, or of a lock of a set. The place may be none of this request any more.
fn one_of_several(
    wanted: &Wanted,
    seen: Value,
    waited: Duration,
    deps: &Deps,
) -> Option<Option<(LockKey, Observation)>> {
    let Value::Object(mut seen) = seen else { return None };
    let number = usize::try_from(seen.remove(wanted.number()?)?.as_u64()?).ok()?;
    let Some(key) = wanted.key_of(number) else { return Some(None) };
    // By the key of the row: a key that begins as the prefix does would be taken for one.
    one(&key, seen, waited, deps).map(|observation| Some((deps.row(&key), observation)))
}

/// What the HMAC of an observation is of.
fn content(row: &LockKey, observation: &Observation, at: Option<u64>) -> Value {
    json!(["observation", row.key(), row.sort_key(), observation, at])
}
