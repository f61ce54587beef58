//! `acquire`: acquires a lock, or reports its holder.

use crate::deps::Deps;
use crate::lock::{LONGEST_DATA, LockJson, answerable, epoch_millis, key, lease};
use crate::time::Time;
use lambda_lock::protocol::LONGEST_NAME;
use lambda_lock::{Attribute, Held, LockKey, Observation};
use lambda_lock_functions::{Failure, Fields, LONGEST_MESSAGE, beginning, quoted, short};
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most bytes of additional attributes, names and values together.
pub(crate) const LONGEST_ATTRIBUTES: usize = 4 * 1024;
/// The most bytes of additional attributes in a response, as JSON. In JSON some characters take six bytes.
const LONGEST_ATTRIBUTES_IN_JSON: usize = 7 * LONGEST_ATTRIBUTES;

/// `{"action":"acquire","key":…,"owner":…,"leaseSeconds":…}` and optional fields.
#[derive(Debug)]
pub(crate) struct Request {
    key: LockKey,
    owner: String,
    /// Whether a living holder of the same name is this caller. The response to its first request was lost.
    reclaim: bool,
    lease: Duration,
    wait: Duration,
    when_held: WhenHeld,
    data: Option<String>,
    attributes: BTreeMap<String, Attribute>,
    execution: Option<String>,
    observation: Option<Observation>,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let request = Self {
            key: key(&mut fields, deps)?,
            owner: fields.name("owner", LONGEST_NAME)?,
            reclaim: fields.flag("reclaim")?,
            lease: lease(&mut fields)?,
            wait: fields.optional_seconds("waitSeconds")?.unwrap_or_default(),
            when_held: WhenHeld::read(&mut fields)?,
            data: fields.optional_text_up_to("data", LONGEST_DATA)?,
            attributes: attributes(&mut fields)?,
            execution: fields.optional_name("execution", LONGEST_NAME)?,
            observation: observation(&mut fields)?,
        };
        fields.nothing_else()?;
        Ok(request)
    }
}

/// How to respond when another caller holds the lock.
#[derive(Debug)]
enum WhenHeld {
    /// Fails with `LockHeld`.
    Fail,
    /// Returns a report, with a waiting time that is at most this long.
    Report { longest_wait: Option<u64> },
    /// Fails with `LockHeld`, whose message is the report as JSON.
    FailWithReport { longest_wait: Option<u64> },
}

impl WhenHeld {
    fn read(fields: &mut Fields) -> Result<Self, Failure> {
        let longest_wait = longest_wait(fields)?;
        match fields.optional_text("whenHeld")?.as_deref() {
            None | Some("fail") if longest_wait.is_some() => Err(fields
                .malformed("maxRetryAfterSeconds", "it needs whenHeld: report or failWithReport in the same request")),
            None | Some("fail") => Ok(Self::Fail),
            Some("report") => Ok(Self::Report { longest_wait }),
            Some("failWithReport") => Ok(Self::FailWithReport { longest_wait }),
            Some(_) => Err(fields.malformed("whenHeld", "give fail, report or failWithReport")),
        }
    }
}

/// Reads additional attributes. The crate checks their names and their numbers.
fn attributes(fields: &mut Fields) -> Result<BTreeMap<String, Attribute>, Failure> {
    let given = match fields.take("attributes") {
        None => Map::new(),
        Some(Value::Object(given)) => given,
        Some(_) => return Err(fields.malformed("attributes", "give an object of texts and numbers")),
    };
    let mut bytes = 0;
    let mut attributes = BTreeMap::new();
    for (name, value) in given {
        let (text, kind): (String, fn(String) -> Attribute) = match value {
            Value::String(text) => (text, Attribute::Text),
            Value::Number(number) => (number.to_string(), Attribute::Number),
            _ => return Err(fields.malformed("attributes", "give a text or a number for each of them")),
        };
        bytes += name.len() + text.len();
        attributes.insert(name, kind(text));
    }
    if bytes > LONGEST_ATTRIBUTES {
        let hint = format!("they have {bytes} bytes of names and values; give at most {LONGEST_ATTRIBUTES}");
        return Err(fields.malformed("attributes", &hint));
    }
    Ok(attributes)
}

/// Returns the additional attributes of a holder, if they are small enough for a response. Those of other clients may
/// be as large as a row.
fn attributes_json(attributes: &BTreeMap<String, Attribute>) -> Option<Value> {
    let json = |attribute: &Attribute| match attribute {
        Attribute::Text(text) => Some(Value::from(text.as_str())),
        Attribute::Number(number) => {
            Some(number.parse::<Number>().map_or_else(|_| Value::from(number.as_str()), Value::Number))
        }
        _ => None,
    };
    let fields = attributes.iter().filter_map(|(name, attribute)| Some((name.clone(), json(attribute)?)));
    Some(Value::Object(fields.collect())).filter(|fields| fields.to_string().len() <= LONGEST_ATTRIBUTES_IN_JSON)
}

/// Reads the limit in whole seconds, because a `Wait` state takes whole seconds.
fn longest_wait(fields: &mut Fields) -> Result<Option<u64>, Failure> {
    match fields.optional_seconds("maxRetryAfterSeconds")?.map(|longest| longest.as_secs()) {
        Some(0) => Err(fields.malformed("maxRetryAfterSeconds", "give at least 1")),
        longest => Ok(longest),
    }
}

/// Reads the observation of an earlier response, and how long the caller has waited since. In its first loop
/// a state machine has no observation. It sends `null`, and the waiting time is ignored.
fn observation(fields: &mut Fields) -> Result<Option<Observation>, Failure> {
    let seen = fields.take("observation");
    if matches!(seen, Some(Value::Null)) {
        return match fields.take("waitedSeconds") {
            None | Some(Value::Null | Value::Number(_)) => Ok(None),
            Some(_) => Err(fields.malformed("waitedSeconds", "give a number of seconds")),
        };
    }
    match (seen, fields.optional_seconds("waitedSeconds")?) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(fields.malformed("waitedSeconds", "it needs observation in the same request")),
        (Some(_), None) => Err(fields.malformed("observation", "it needs waitedSeconds in the same request")),
        (Some(seen), Some(waited)) => match serde_json::from_value::<Observation>(seen) {
            Ok(seen) => Ok(Some(seen.and_waited(waited))),
            Err(_) => Err(fields.malformed("observation", "send it exactly as it was returned")),
        },
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let Request { key, owner, reclaim, lease, wait, when_held, data, attributes, execution, observation } = request;
    let budget = time.waiting(wait, lease);
    let mut acquire = deps.locks.acquire(&key).owner(&owner).lease(lease).within(&budget).attributes(attributes);
    if reclaim {
        acquire = acquire.reclaim_own();
    }
    if let Some(execution) = execution {
        acquire = acquire.workflow(execution);
    }
    if let Some(data) = data {
        acquire = acquire.data(data);
    }
    if let Some(observation) = observation {
        acquire = acquire.observation(observation);
    }
    match acquire.await {
        Ok(lock) => {
            let on_row = lock.data();
            let data = on_row.and_then(answerable);
            let omitted = on_row.is_some() && data.is_none();
            let lock = LockJson { token: lock.save(), data }.json(deps);
            let mut answer = json!({ "acquired": true, "lock": lock });
            if omitted {
                answer["dataOmitted"] = true.into();
            }
            Ok(answer)
        }
        Err(error) => match (error.held(), when_held) {
            (Some(held), WhenHeld::Report { longest_wait }) => Ok(report(held, longest_wait)),
            (Some(held), WhenHeld::FailWithReport { longest_wait }) => Err(held_with_report(held, longest_wait)),
            (Some(held), WhenHeld::Fail) => Err(is_held(&key, held, &owner)),
            (None, _) => Err(error.into()),
        },
    }
}

/// Returns the error for a held lock. If the holder has the caller's own name, the request is a retry, or
/// two callers use one name. The error then explains both.
fn is_held(key: &LockKey, held: &Held, owner: &str) -> Failure {
    let retry_after = held.retry_after;
    // Only rows of this crate have the end of their lease, and only those can be reclaimed.
    let own_name = held.holder == owner && held.lease_ends_at.is_some();
    Failure::held(if own_name {
        format!(
            "the lock {key} is held by {holder}, which is this request's own owner: if this is a retry of the same task, \
             whose response was lost, send \"reclaim\": true; otherwise give each holder a different owner, and retry in \
             at most {retry_after:?}",
            holder = quoted(&held.holder),
        )
    } else {
        format!("the lock {key} is held by {}: retry in at most {retry_after:?}", quoted(&held.holder))
    })
}

/// Returns the error for a held lock whose message is a report. A message has at most [`LONGEST_MESSAGE`] bytes and
/// must not be cut. So the holder's name is shortened, and additional attributes and an observation that are too long are
/// left out.
fn held_with_report(held: &Held, longest_wait: Option<u64>) -> Failure {
    let mut report = report(held, longest_wait);
    report["holder"]["owner"] = short(&held.holder).to_string().into();
    let is_too_long = report.to_string().len() > LONGEST_MESSAGE;
    if let Some(holder) = report["holder"].as_object_mut().filter(|_| is_too_long && !held.attributes.is_empty()) {
        holder.remove("attributes");
        holder.insert("attributesOmitted".to_owned(), true.into());
    }
    if report.to_string().len() > LONGEST_MESSAGE {
        report["observation"] = Value::Null;
    }
    Failure::held(report.to_string())
}

fn report(held: &Held, longest_wait: Option<u64>) -> Value {
    // A Wait state takes whole seconds. Rounding down would end the wait too early.
    let dead_in = u64::try_from(held.retry_after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
    // Owners and versions of this crate have at most this length. Another client's may be as large as a row.
    let carried = held.observation.version().len() <= LONGEST_NAME;
    let mut holder = json!({
        "owner": beginning(&held.holder, LONGEST_NAME),
        "leaseEndsAt": held.lease_ends_at.map(epoch_millis),
    });
    if !held.attributes.is_empty() {
        match attributes_json(&held.attributes) {
            Some(attributes) => holder["attributes"] = attributes,
            None => holder["attributesOmitted"] = true.into(),
        }
    }
    json!({
        "acquired": false,
        "holder": holder,
        "retryAfterSeconds": longest_wait.map_or(dead_in, |longest| longest.min(dead_in)),
        "observation": carried.then_some(&held.observation),
    })
}
