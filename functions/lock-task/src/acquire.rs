//! `acquire`: acquires a lock, or reports its holder.

use crate::deps::Deps;
use crate::lock::{LONGEST_DATA, LockJson, Locks, answerable, epoch_millis, key, lease};
use crate::time::Time;
use lambda_lock::protocol::LONGEST_NAME;
use lambda_lock::{Attribute, Blocked, Held, Lock, LockKey, LockSet, MOST_LOCKS, MOST_PLACES, Observation};
use lambda_lock_functions::{Failure, Fields, LONGEST_MESSAGE, beginning, quoted, short};
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most bytes of additional attributes, names and values together.
pub(crate) const LONGEST_ATTRIBUTES: usize = 4 * 1024;
/// The most bytes of additional attributes in a response, as JSON. In JSON some characters take six bytes.
const LONGEST_ATTRIBUTES_IN_JSON: usize = 7 * LONGEST_ATTRIBUTES;

/// The most bytes of the locks of a set in a response, as JSON.
const LONGEST_SET_IN_JSON: usize = 120 * 1024;
/// The most bytes of a lock in a response, as JSON, without its key and owner.
const REST_OF_LOCK_IN_JSON: usize = 300;

/// `{"action":"acquire","key":…,"owner":…,"leaseSeconds":…}` and optional fields.
#[derive(Debug)]
pub(crate) struct Request {
    wanted: Wanted,
    owner: String,
    /// Whether a living holder of the same name is this caller. The response to its first request was lost.
    reclaim: bool,
    lease: Duration,
    wait: Duration,
    when_held: WhenHeld,
    data: Option<String>,
    attributes: BTreeMap<String, Attribute>,
    execution: Option<String>,
    observed: Observed,
}

/// What the caller wants to hold.
#[derive(Debug)]
enum Wanted {
    Lock(LockKey),
    /// One of this many places.
    Place {
        name: LockKey,
        permits: u32,
    },
    /// All of them.
    Set(Vec<LockKey>),
}

/// What an earlier response has shown.
#[derive(Debug, Default)]
struct Observed {
    /// Of one lock.
    one: Option<Observation>,
    /// Of places, or of the locks of a set: each with its number, or its position.
    several: Vec<(usize, Observation)>,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let wanted = Wanted::read(&mut fields, deps)?;
        let request = Self {
            owner: fields.name("owner", LONGEST_NAME)?,
            reclaim: fields.flag("reclaim")?,
            lease: lease(&mut fields)?,
            wait: fields.optional_seconds("waitSeconds")?.unwrap_or_default(),
            when_held: WhenHeld::read(&mut fields)?,
            data: fields.optional_text_up_to("data", LONGEST_DATA)?,
            attributes: attributes(&mut fields)?,
            execution: fields.optional_name("execution", LONGEST_NAME)?,
            observed: Observed::read(&mut fields, &wanted)?,
            wanted,
        };
        if matches!(request.wanted, Wanted::Set(_)) && (request.data.is_some() || !request.attributes.is_empty()) {
            return Err(fields.malformed("keys", "data and attributes are for one lock; leave them out"));
        }
        fields.nothing_else()?;
        request.check_response()?;
        Ok(request)
    }

    /// A response names the owner with each lock of a set. Refuses a set that Step Functions could not pass on.
    fn check_response(&self) -> Result<(), Failure> {
        let Wanted::Set(keys) = &self.wanted else { return Ok(()) };
        let in_json = |text: &str| Value::from(text).to_string().len();
        let each = |key: &LockKey| {
            in_json(key.key()) + key.sort_key().map_or(0, in_json) + in_json(&self.owner) + REST_OF_LOCK_IN_JSON
        };
        let bytes: usize = keys.iter().map(each).sum();
        if bytes > LONGEST_SET_IN_JSON {
            return Err(Failure::invalid_request(format!(
                "keys is malformed: the keys, and the owner for each of them, take {bytes} bytes in the response; \
                 shorten them to {LONGEST_SET_IN_JSON}"
            )));
        }
        Ok(())
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

impl Wanted {
    fn read(fields: &mut Fields, deps: &Deps) -> Result<Self, Failure> {
        if !fields.has("keys") {
            let name = key(fields, deps)?;
            if !fields.has("permits") {
                return Ok(Self::Lock(name));
            }
            let permits = fields.whole_number("permits")?;
            return match u32::try_from(permits) {
                Ok(permits @ 1..=MOST_PLACES) => Ok(Self::Place { name, permits }),
                _ => Err(fields.malformed("permits", &format!("give a number from 1 to {MOST_PLACES}"))),
            };
        }
        if ["key", "sortKey", "permits"].iter().any(|other| fields.has(other)) {
            return Err(fields.malformed("keys", "give it without key, sortKey and permits"));
        }
        let keys: Vec<LockKey> = if deps.sort_key {
            let each = fields.objects("keys", "keys.")?.into_iter().map(|mut fields| {
                let key = key(&mut fields, deps)?;
                fields.nothing_else().map(|()| key)
            });
            each.collect::<Result<_, _>>()?
        } else {
            let Some(Value::Array(list)) = fields.take("keys") else {
                return Err(fields.malformed("keys", "give a list of texts"));
            };
            let longest = deps.longest_key();
            let each = list.into_iter().map(|key| match key {
                Value::String(key) if (1..=longest).contains(&key.len()) => Ok(LockKey::from(key)),
                _ => Err(fields.malformed("keys", &format!("give a list of texts, each of 1 to {longest} bytes"))),
            });
            each.collect::<Result<_, _>>()?
        };
        if keys.is_empty() || keys.len() > MOST_LOCKS {
            return Err(fields.malformed("keys", &format!("give 1 to {MOST_LOCKS} keys")));
        }
        Ok(Self::Set(keys))
    }

    /// The field with the number of a place, or the position of a key, in reports about several locks.
    fn number(&self) -> Option<&'static str> {
        match self {
            Self::Lock(_) => None,
            Self::Place { .. } => Some("place"),
            Self::Set(_) => Some("index"),
        }
    }

    /// The number of a place, or the position of a key of a set, in the field that [`number`](Wanted::number) names.
    fn number_of(&self, row: &LockKey, deps: &Deps) -> Option<usize> {
        match self {
            Self::Lock(_) => None,
            Self::Place { .. } => row.key().rsplit('/').next()?.parse().ok(),
            Self::Set(keys) => keys.iter().position(|key| deps.row(key) == *row),
        }
    }

    /// The key of this place, or of the lock at this position.
    fn key_of(&self, number: usize) -> Option<LockKey> {
        match self {
            Self::Lock(_) => None,
            Self::Place { name, .. } => {
                Some(LockKey::new(format!("{}/{number}", name.key()), name.sort_key().map(str::to_owned)))
            }
            Self::Set(keys) => keys.get(number).cloned(),
        }
    }
}

impl Observed {
    /// Reads the observation of an earlier response, and how long the caller has waited since. In its first loop
    /// a state machine has no observation. It sends `null`, and the waiting time is ignored.
    fn read(fields: &mut Fields, wanted: &Wanted) -> Result<Self, Failure> {
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
        let changed = || fields.malformed("observation", "send it exactly as it was returned");
        let one = |seen| serde_json::from_value::<Observation>(seen).map(|seen| seen.and_waited(waited)).ok();
        match (wanted.number(), seen) {
            (None, seen) => Ok(Self { one: Some(one(seen).ok_or_else(changed)?), several: Vec::new() }),
            (Some(number), Value::Array(list)) => {
                let each = list.into_iter().map(|mut seen| {
                    let place = seen.as_object_mut()?.remove(number)?.as_u64()?;
                    Some((usize::try_from(place).ok()?, one(seen)?))
                });
                let several = each.collect::<Option<_>>().ok_or_else(changed)?;
                Ok(Self { one: None, several })
            }
            (Some(_), _) => Err(changed()),
        }
    }
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    match &request.wanted {
        Wanted::Lock(key) => one(key.clone(), request, time, deps).await,
        Wanted::Place { .. } | Wanted::Set(_) => several(request, time, deps).await,
    }
}

async fn one(key: LockKey, request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let Request { owner, reclaim, lease, wait, when_held, data, attributes, execution, observed, .. } = request;
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
    if let Some(observation) = observed.one {
        acquire = acquire.observation(observation);
    }
    match acquire.await {
        Ok(lock) => Ok(granted(lock, deps)),
        Err(error) => match (error.held(), when_held) {
            (Some(held), WhenHeld::Report { longest_wait }) => Ok(report(held, longest_wait)),
            (Some(held), WhenHeld::FailWithReport { longest_wait }) => Err(held_with_report(held, longest_wait)),
            (Some(held), WhenHeld::Fail) => Err(is_held(&key, held, &owner)),
            (None, _) => Err(error.into()),
        },
    }
}

fn granted(lock: Lock, deps: &Deps) -> Value {
    let on_row = lock.data();
    let data = on_row.and_then(answerable);
    let omitted = on_row.is_some() && data.is_none();
    let lock = Locks::One(LockJson { token: lock.save(), data }).json(deps);
    let mut answer = json!({ "acquired": true, "lock": lock });
    if omitted {
        answer["dataOmitted"] = true.into();
    }
    answer
}

/// Acquires one of several places, or all locks of a set.
async fn several(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let Request { wanted, owner, reclaim, lease, wait, when_held, data, attributes, execution, observed } = request;
    let budget = time.waiting(wait, lease);
    // By the keys of the rows: a key that begins as the prefix does would be taken for one.
    let observations: Vec<_> = observed
        .several
        .into_iter()
        .filter_map(|(number, seen)| Some((deps.row(&wanted.key_of(number)?), seen)))
        .collect();
    let acquired = match &wanted {
        Wanted::Lock(_) => return Err(Failure::invalid_request("key is missing")),
        Wanted::Place { name, permits } => {
            let semaphore = deps.locks.semaphore(name, *permits);
            let acquire = semaphore.acquire().owner(&owner).lease(lease).within(&budget).observations(observations);
            let acquire = attributes.into_iter().fold(acquire, |acquire, (name, value)| acquire.attribute(name, value));
            let acquire = if reclaim { acquire.reclaim_own() } else { acquire };
            let acquire = execution.into_iter().fold(acquire, |acquire, execution| acquire.workflow(execution));
            let acquire = data.into_iter().fold(acquire, |acquire, data| acquire.data(data));
            acquire.await.map(|permit| {
                let place = permit.place();
                let mut answer = granted(permit.into_lock(), deps);
                answer["place"] = place.into();
                answer
            })
        }
        Wanted::Set(keys) => {
            let acquire = deps.locks.acquire_all(keys).owner(&owner).lease(lease).within(&budget);
            let acquire = acquire.observations(observations);
            let acquire = if reclaim { acquire.reclaim_own() } else { acquire };
            let acquire = execution.into_iter().fold(acquire, |acquire, execution| acquire.workflow(execution));
            let json = |set: LockSet| json!({ "acquired": true, "lock": Locks::of_set(&set.save()).json(deps) });
            acquire.await.map(json)
        }
    };
    acquired.or_else(|error| match (error.held(), when_held) {
        (Some(held), WhenHeld::Report { longest_wait }) => {
            Ok(report_of_several(&wanted, error.blocked(), held, longest_wait, deps))
        }
        (Some(held), WhenHeld::FailWithReport { longest_wait }) => {
            let mut report = report_of_several(&wanted, error.blocked(), held, longest_wait, deps);
            for field in ["holders", "observation"] {
                if report.to_string().len() > LONGEST_MESSAGE {
                    report[field] = Value::Null;
                }
            }
            Err(Failure::held(report.to_string()))
        }
        (Some(_), WhenHeld::Fail) => Err(Failure::held(error.to_string())),
        (None, _) => Err(error.into()),
    })
}

/// How many holders a report about several locks has, and how many observations. These are the ones that decide how long
/// to wait.
const MOST_REPORTED: usize = 20;
/// The longest version in a report about several locks. Those of the known clients are shorter.
const LONGEST_VERSION: usize = 128;

/// The report about several locks. Names are shortened, so that it is never too long for a response.
fn report_of_several(
    wanted: &Wanted,
    blocked: &[Blocked],
    deciding: &Held,
    longest_wait: Option<u64>,
    deps: &Deps,
) -> Value {
    let number = wanted.number().unwrap_or("index");
    let holder = |one: &Blocked| {
        json!({
            number: wanted.number_of(&one.key, deps),
            "owner": short(&one.held.holder).to_string(),
            "leaseEndsAt": one.held.lease_ends_at.map(epoch_millis),
        })
    };
    let mut by_time: Vec<&Blocked> = blocked.iter().collect();
    by_time.sort_by_key(|one| one.held.retry_after);
    if matches!(wanted, Wanted::Set(_)) {
        // All of them must be free.
        by_time.reverse();
    }
    by_time.truncate(MOST_REPORTED);
    let observed = |one: &&Blocked| {
        let mut seen = serde_json::to_value(&one.held.observation).ok()?;
        seen[number] = wanted.number_of(&one.key, deps).into();
        (one.held.observation.version().len() <= LONGEST_VERSION).then_some(seen)
    };
    let mut report = report(deciding, longest_wait);
    report["holder"] = by_time.first().map_or(Value::Null, |first| holder(first));
    report["holders"] = by_time.iter().map(|one| holder(one)).collect();
    report["observation"] = by_time.iter().filter_map(observed).collect();
    report
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
