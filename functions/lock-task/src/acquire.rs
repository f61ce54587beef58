//! `acquire`: acquires a lock, or reports its holder.

use crate::deps::Deps;
use crate::lock::{LockJson, Locks, MAX_ATTRIBUTES_BYTES, MAX_DATA_BYTES, answerable, lease, resolved};
use crate::observed::Observed;
use crate::refusal::{WhenHeld, of_field};
use crate::time::Time;
use crate::wanted::Wanted;
use lambda_lock::{Acquire, Attribute, Budget, Lock, LockKey, LockSet, MAX_NAME_BYTES, Observation};
use lambda_lock_functions::{Failure, Fields, Waker};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most bytes of the locks of a set in a response, as JSON.
const MAX_SET_IN_JSON: usize = 120 * 1024;
/// The most bytes of a lock in a response, as JSON, without its key and owner.
const REST_OF_LOCK_IN_JSON: usize = 404;

/// `{"action":"acquire","key":…,"owner":…,"leaseSeconds":…}` and optional fields.
#[derive(Debug)]
pub(crate) struct Request {
    wanted: Wanted,
    owner: String,
    /// Whether a living holder of the same name is this caller. The response to its first request was lost.
    reclaim: bool,
    /// Whether the caller takes a place in line, and comes back for the lock.
    in_line: bool,
    lease: Duration,
    wait: Duration,
    when_held: WhenHeld,
    data: Option<String>,
    attributes: BTreeMap<String, Attribute>,
    execution: Option<String>,
    observed: Observed,
}

impl Request {
    pub(crate) fn read(mut fields: Fields, deps: &Deps) -> Result<Self, Failure> {
        let wanted = Wanted::read(&mut fields, deps)?;
        let request = Self {
            owner: fields.name("owner", MAX_NAME_BYTES)?,
            reclaim: fields.flag("reclaim")?,
            in_line: fields.flag("inLine")?,
            lease: lease(&mut fields, deps.trust.longest_lease)?,
            wait: fields.optional_seconds("waitSeconds")?.unwrap_or_default(),
            when_held: WhenHeld::read(&mut fields)?,
            data: fields.optional_text_up_to("data", MAX_DATA_BYTES)?,
            attributes: attributes(&mut fields)?,
            execution: fields.optional_name("execution", MAX_NAME_BYTES)?,
            observed: Observed::read(&mut fields, &wanted, deps)?,
            wanted,
        };
        resolved(&fields, "owner", &request.owner)?;
        request.execution.iter().try_for_each(|execution| resolved(&fields, "execution", execution))?;
        match &request.wanted {
            // Whoever is to be woken needs a wake item.
            Wanted::Lock(key) if request.in_line => Waker::item_key(&deps.row(key), u64::MAX).map(drop)?,
            Wanted::Place { .. } | Wanted::Set(_) if request.in_line => {
                return Err(fields.malformed("inLine", "it is for one lock; leave it out"));
            }
            _ => {}
        }
        if matches!(request.wanted, Wanted::Set(_)) && (request.data.is_some() || !request.attributes.is_empty()) {
            return Err(fields.malformed("keys", "data and attributes are for one lock; leave them out"));
        }
        fields.nothing_else()?;
        request.check_response()?;
        Ok(request)
    }

    /// Makes the acquire of one lock. Takes out of the request what only the acquire needs.
    fn acquire<'a>(&mut self, key: &LockKey, budget: &Budget, deps: &'a Deps) -> Acquire<'a> {
        let acquire = deps.locks.acquire(key);
        // Without a place in line, a caller that comes back after seconds would be refused for as long as others wait.
        let acquire = if self.in_line { acquire.between_calls() } else { acquire.out_of_turn() };
        let acquire = acquire.owner(&self.owner).lease(self.lease).within(budget);
        let mut acquire = acquire.attributes(std::mem::take(&mut self.attributes));
        if self.reclaim {
            acquire = acquire.reclaim_own();
        }
        if let Some(execution) = self.execution.take() {
            acquire = acquire.workflow(execution);
        }
        if let Some(data) = self.data.take() {
            acquire = acquire.data(data);
        }
        if let Some(observation) = self.observed.one.take() {
            acquire = acquire.observation(observation);
        }
        acquire
    }

    /// A response names the owner with each lock of a set. Refuses a set that Step Functions could not pass on.
    fn check_response(&self) -> Result<(), Failure> {
        let Wanted::Set(keys) = &self.wanted else { return Ok(()) };
        let in_json = |text: &str| Value::from(text).to_string().len();
        let each = |key: &LockKey| {
            in_json(key.key()) + key.sort_key().map_or(0, in_json) + in_json(&self.owner) + REST_OF_LOCK_IN_JSON
        };
        let bytes: usize = keys.iter().map(each).sum();
        if bytes > MAX_SET_IN_JSON {
            return Err(Failure::invalid_request(format!(
                "keys is malformed: the keys, and the owner for each of them, take {bytes} bytes in the response; \
                 shorten them to {MAX_SET_IN_JSON}"
            )));
        }
        Ok(())
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
    if bytes > MAX_ATTRIBUTES_BYTES {
        let hint = format!("they have {bytes} bytes of names and values; give at most {MAX_ATTRIBUTES_BYTES}");
        return Err(fields.malformed("attributes", &hint));
    }
    Ok(attributes)
}

pub(crate) async fn run(request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    if time.is_over() {
        // A grant that nobody learns of would keep the lock from all others.
        let late = "the invocation has no time left in which it could answer, so no lock was acquired; retry the call";
        return Err(Failure::unknown(late));
    }
    match &request.wanted {
        Wanted::Lock(key) => one(key.clone(), request, time, deps).await,
        Wanted::Place { .. } | Wanted::Set(_) => several(request, time, deps).await,
    }
}

async fn one(key: LockKey, mut request: Request, time: &Time, deps: &Deps) -> Result<Value, Failure> {
    let budget = time.waiting(request.wait, request.lease);
    // A caller that was woken has no wake item any more.
    let observed = request.observed.one.as_ref().filter(|_| request.observed.has_waited && request.in_line);
    let slept_with = observed.and_then(Observation::ticket);
    let acquired = request.acquire(&key, &budget, deps).await;
    // With the lock it needs no place any more, and whoever was passed has another one by now.
    let place = acquired.as_ref().err().map(|error| error.refusal().and_then(|held| held.observation.ticket()));
    let left_behind = slept_with.filter(|_| place.is_none_or(|place| place.is_some() && place != slept_with));
    if let Some(item) = left_behind.and_then(|ticket| Waker::item_key(&deps.row(&key), ticket).ok()) {
        deps.waker.forget(&item, budget.remaining()).await;
    }
    match acquired {
        Ok(lock) => Ok(granted(lock, deps)),
        Err(error) => match error.refusal() {
            Some(held) => request.when_held.refusal(&key, held, &request.owner, deps),
            None => Err(of_field(error, "key")),
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
    let Request { wanted, owner, reclaim, lease, wait, when_held, data, attributes, execution, observed, .. } = request;
    let budget = time.waiting(wait, lease);
    let observations = observed.several;
    let acquired = match &wanted {
        Wanted::Lock(_) => return Err(Failure::invalid_request("key is missing")),
        Wanted::Place { name, permits } => {
            let semaphore = deps.locks.semaphore(name, *permits);
            let acquire = semaphore.acquire().owner(&owner).lease(lease).within(&budget).observations(observations);
            let acquire = attributes.into_iter().fold(acquire, |acquire, (name, value)| acquire.attribute(name, value));
            let acquire = if reclaim { acquire.reclaim_own() } else { acquire };
            let acquire = execution.into_iter().fold(acquire, |acquire, execution| acquire.workflow(execution));
            let acquire = data.into_iter().fold(acquire, |acquire, data| acquire.data(data));
            acquire.await.map(|lock| {
                let place = lock.place();
                let mut answer = granted(lock, deps);
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
    acquired.or_else(|error| match error.refusal() {
        Some(held) => when_held.refusal_of_several(&wanted, &error, held, deps),
        None => Err(of_field(error, if matches!(wanted, Wanted::Set(_)) { "keys" } else { "key" })),
    })
}
