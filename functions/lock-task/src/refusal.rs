//! What a caller is told when others hold the lock: an error, or a report.

use crate::deps::Deps;
use crate::lock::MAX_ATTRIBUTES_BYTES;
use crate::observed::handed_out;
use crate::time::epoch_millis;
use crate::wanted::Wanted;
use lambda_lock::{Attribute, Error, ErrorKind, LockKey, MAX_NAME_BYTES, Refusal};
use lambda_lock_functions::{Failure, Fields, MAX_MESSAGE_BYTES, beginning, quoted, short};
use serde_json::{Number, Value, json};
use std::collections::BTreeMap;

/// The most bytes of additional attributes in a response, as JSON. In JSON some characters take six bytes.
const MAX_ATTRIBUTES_IN_JSON: usize = 7 * MAX_ATTRIBUTES_BYTES;
/// How many holders a report about several locks has, and how many observations. These are the ones that decide how long
/// to wait.
const MAX_REPORTED: usize = 20;
/// How many locks a sentence names.
const MAX_NAMED: usize = 5;
/// The longest version in a report about several locks. Those of the known clients are shorter.
const MAX_VERSION_BYTES: usize = 128;

/// How to respond when another caller holds the lock.
#[derive(Debug)]
pub(crate) enum WhenHeld {
    /// Fails with `LockHeld`.
    Fail,
    /// Returns a report, with a waiting time that is at most this long.
    Report { longest_wait: Option<u64> },
    /// Fails with `LockHeld`, whose message is the report as JSON.
    FailWithReport { longest_wait: Option<u64> },
}

impl WhenHeld {
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, Failure> {
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

    /// What the caller of one lock is told.
    pub(crate) fn refusal(self, key: &LockKey, held: &Refusal, owner: &str, deps: &Deps) -> Result<Value, Failure> {
        match self {
            Self::Fail => Err(is_held(key, held, owner, deps)),
            Self::Report { longest_wait } => Ok(report(&deps.row(key), held, longest_wait, deps)),
            Self::FailWithReport { longest_wait } => {
                Err(held_with_report(report(&deps.row(key), held, longest_wait, deps), held, deps))
            }
        }
    }

    /// What the caller of a place, or of a set, is told.
    pub(crate) fn refusal_of_several(
        self,
        wanted: &Wanted,
        error: &Error,
        deciding: &Refusal,
        deps: &Deps,
    ) -> Result<Value, Failure> {
        let blocked = error.refusals();
        match self {
            Self::Fail if deps.trust.hides_owners() => Err(are_held(wanted, blocked, deciding)),
            Self::Fail => Err(Failure::held(error.to_string())),
            Self::Report { longest_wait } => Ok(report_of_several(wanted, blocked, deciding, longest_wait, deps)),
            Self::FailWithReport { longest_wait } => {
                let mut report = report_of_several(wanted, blocked, deciding, longest_wait, deps);
                for field in ["holders", "observation", "freezeReason"] {
                    if report.to_string().len() > MAX_MESSAGE_BYTES {
                        report[field] = Value::Null;
                    }
                }
                Err(Failure::held(report.to_string()))
            }
        }
    }
}

/// The failure for an error of the crate. A request that it refuses without sending it begins with the field.
pub(crate) fn of_field(error: Error, field: &str) -> Failure {
    if error.kind() != ErrorKind::InvalidRequest || std::error::Error::source(&error).is_some() {
        return error.into();
    }
    let said = error.to_string();
    let field = if said.contains("bytes of data") {
        "data"
    } else if said.contains("additional attribute") {
        "attributes"
    } else {
        field
    };
    Failure::invalid_request(format!("{field} is malformed: {said}"))
}

/// Reads the limit in whole seconds, because a `Wait` state takes whole seconds.
fn longest_wait(fields: &mut Fields) -> Result<Option<u64>, Failure> {
    match fields.optional_seconds("maxRetryAfterSeconds")?.map(|longest| longest.as_secs()) {
        Some(0) => Err(fields.malformed("maxRetryAfterSeconds", "give at least 1")),
        longest => Ok(longest),
    }
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
    Some(Value::Object(fields.collect())).filter(|fields| fields.to_string().len() <= MAX_ATTRIBUTES_IN_JSON)
}

/// The report about several locks. Names are shortened, so that it is never too long for a response.
fn report_of_several(
    wanted: &Wanted,
    blocked: &[Refusal],
    deciding: &Refusal,
    longest_wait: Option<u64>,
    deps: &Deps,
) -> Value {
    let number = wanted.number().unwrap_or("index");
    let holder = |one: &Refusal| {
        json!({
            number: wanted.number_of(&one.key, deps),
            "owner": short(&deps.trust.shown(&one.holder)).to_string(),
            "leaseEndsAt": one.lease_ends_at.map(epoch_millis),
        })
    };
    let mut by_time: Vec<&Refusal> = blocked.iter().collect();
    by_time.sort_by_key(|one| one.retry_after);
    if matches!(wanted, Wanted::Set(_)) {
        // All of them must be free.
        by_time.reverse();
    }
    by_time.truncate(MAX_REPORTED);
    let observed = |one: &&Refusal| {
        let observation = &one.observation;
        let mut seen =
            handed_out(&one.key, observation, deps).filter(|_| observation.version().len() <= MAX_VERSION_BYTES)?;
        seen[number] = wanted.number_of(&one.key, deps).into();
        Some(seen)
    };
    let report = json!({
        "acquired": false,
        "holder": by_time.first().map(|first| holder(first)),
        "holders": by_time.iter().map(|one| holder(one)).collect::<Vec<_>>(),
        "retryAfterSeconds": retry_after(deciding, longest_wait),
        "observation": by_time.iter().filter_map(observed).collect::<Vec<_>>(),
    });
    with_freeze_reason(report, deciding)
}

/// Adds why the lock is frozen, if it is. An operator wrote that for those who are refused.
fn with_freeze_reason(mut report: Value, held: &Refusal) -> Value {
    if let Some(reason) = &held.freeze_reason {
        report["freezeReason"] = beginning(reason, MAX_NAME_BYTES).into();
    }
    report
}

/// Returns the error for a held lock. If the holder has the caller's own name, the request is a retry, or
/// two callers use one name. The error then explains both.
fn is_held(key: &LockKey, held: &Refusal, owner: &str, deps: &Deps) -> Failure {
    let retry_after = held.retry_after;
    if let Some(reason) = &held.freeze_reason {
        return Failure::held(format!("the lock {key} is {}", frozen(reason)));
    }
    if held.left_to_line {
        let waiting = held.waiting;
        return Failure::held(format!(
            "the lock {key} is held by nobody, and left to the callers that wait in line ({waiting}): retry in at most \
             {retry_after:?}"
        ));
    }
    let shown = deps.trust.shown(&held.holder);
    let holder = quoted(&shown);
    // Only rows of this crate have the end of their lease, and only those can be reclaimed.
    let own_name = held.holder == owner && held.lease_ends_at.is_some();
    Failure::held(if own_name {
        format!(
            "the lock {key} is held by {holder}, which is this request's own owner: if this is a retry of the same task, \
             whose response was lost, send \"reclaim\": true; otherwise give each holder a different owner, and retry in \
             at most {retry_after:?}"
        )
    } else {
        format!("the lock {key} is held by {holder}: retry in at most {retry_after:?}")
    })
}

/// Returns the error for several locks that are held, without a holder.
fn are_held(wanted: &Wanted, blocked: &[Refusal], deciding: &Refusal) -> Failure {
    let retry_after = deciding.retry_after;
    let what_to_do = match &deciding.freeze_reason {
        None => format!("retry in at most {retry_after:?}"),
        Some(reason) => format!("one is {}", frozen(reason)),
    };
    let which = match wanted {
        Wanted::Place { permits, .. } => format!("all of the {permits} places are held"),
        Wanted::Lock(_) | Wanted::Set(_) => {
            let named: Vec<_> = blocked.iter().take(MAX_NAMED).map(|one| format!("the lock {}", one.key)).collect();
            format!("{} of the locks are held, such as {}", blocked.len(), named.join(", "))
        }
    };
    Failure::held(format!("{which}: {what_to_do}"))
}

fn frozen(reason: &str) -> String {
    format!("frozen by an operator ({}): retry when it is thawed", quoted(reason))
}

/// Returns the error for a held lock whose message is a report. A message has at most [`MAX_MESSAGE_BYTES`] bytes and
/// must not be cut. So the holder's name is shortened, and additional attributes and an observation that are too long are
/// left out.
fn held_with_report(mut report: Value, held: &Refusal, deps: &Deps) -> Failure {
    report["holder"]["owner"] = short(&deps.trust.shown(&held.holder)).to_string().into();
    if let Some(reason) = &held.freeze_reason {
        report["freezeReason"] = short(reason).to_string().into();
    }
    let is_too_long = report.to_string().len() > MAX_MESSAGE_BYTES;
    if let Some(holder) =
        report["holder"].as_object_mut().filter(|holder| is_too_long && holder.contains_key("attributes"))
    {
        holder.remove("attributes");
        holder.insert("attributesOmitted".to_owned(), true.into());
    }
    if report.to_string().len() > MAX_MESSAGE_BYTES {
        report["observation"] = Value::Null;
    }
    Failure::held(report.to_string())
}

fn report(row: &LockKey, held: &Refusal, longest_wait: Option<u64>, deps: &Deps) -> Value {
    // Owners and versions of this crate have at most this length. Another client's may be as large as a row.
    let carried = held.observation.version().len() <= MAX_NAME_BYTES;
    let mut holder = json!({
        "owner": beginning(&deps.trust.shown(&held.holder), MAX_NAME_BYTES),
        "leaseEndsAt": held.lease_ends_at.map(epoch_millis),
    });
    // Additional attributes may name the holder too.
    if !held.attributes.is_empty() && !deps.trust.hides_owners() {
        match attributes_json(&held.attributes) {
            Some(attributes) => holder["attributes"] = attributes,
            None => holder["attributesOmitted"] = true.into(),
        }
    }
    let report = json!({
        "acquired": false,
        "holder": holder,
        "retryAfterSeconds": retry_after(held, longest_wait),
        "observation": carried.then(|| handed_out(row, &held.observation, deps)).flatten(),
    });
    with_freeze_reason(report, held)
}

/// In whole seconds, which a Wait state takes. Rounding down would end the wait too early.
fn retry_after(held: &Refusal, longest_wait: Option<u64>) -> u64 {
    let dead_in = u64::try_from(held.retry_after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1);
    longest_wait.map_or(dead_in, |longest| longest.min(dead_in))
}
