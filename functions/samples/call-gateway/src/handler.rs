//! One call: take a place, call the gateway, release the place.

use crate::gateway::{Called, Gateway};
use lambda_lock::{
    Budget, DEFAULT_GRACE, LONGEST_KEY, LONGEST_SORT_KEY, LockClient, LockKey, MOST_PLACES, Permit, ReleaseOutcome,
};
use lambda_lock_functions::{AfterWork, Config, ConfigError, Environment, Event, Failure, Fields, optional};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use std::time::Duration;

/// The name of the semaphore if `GATEWAY_NAME` is not set.
const DEFAULT_NAME: &str = "gateway";
/// The number of connections if `GATEWAY_CONNECTIONS` is not set.
const DEFAULT_CONNECTIONS: u32 = 5;
/// What the key of a place has behind the name, at most: a slash and three digits.
const LONGEST_PLACE: usize = 4;
/// The part of the invocation that is reserved for releasing the place and returning the response.
const TO_ANSWER: Duration = Duration::from_millis(500);

/// Clients and settings that all invocations of a process share.
pub(crate) struct Deps {
    locks: LockClient,
    name: LockKey,
    connections: u32,
    gateway: Gateway,
}

impl Deps {
    /// Reads the rest of the environment. Sends no request.
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let name = optional(environment, "GATEWAY_NAME")?.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        // If the table has a sort key, it gets the same text, without the number of the place.
        let sort_key = config.has_sort_key().then(|| name.clone());
        let longest = LONGEST_KEY - LONGEST_PLACE;
        let longest = if sort_key.is_some() { longest.min(LONGEST_SORT_KEY) } else { longest };
        if name.len() > longest {
            return Err(ConfigError::new(format!("GATEWAY_NAME is too long: it may have {longest} bytes")));
        }
        Ok(Self {
            locks: config.locks()?,
            name: LockKey::new(name, sort_key),
            connections: connections(environment)?,
            gateway: Gateway::read(environment)?,
        })
    }
}

fn connections(environment: &Environment<'_>) -> Result<u32, ConfigError> {
    const NAME: &str = "GATEWAY_CONNECTIONS";
    let Some(text) = optional(environment, NAME)? else { return Ok(DEFAULT_CONNECTIONS) };
    let number = text.parse().ok().filter(|number| (1..=MOST_PLACES).contains(number));
    number.ok_or_else(|| ConfigError::new(format!("{NAME} is {text:?}: give a whole number from 1 to {MOST_PLACES}")))
}

/// Takes a place, sends the field `request` of the event to the gateway, and releases the place.
pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let mut fields = Fields::of_event(&event.payload)?;
    let request = fields.take("request").ok_or_else(|| Failure::invalid_request("request is missing"))?;
    fields.nothing_else()?;
    let budget = budget(event.context);
    call(&request, &budget, deps).await.map_err(|failure| failure.of_lock(&deps.name))
}

/// A budget that ends before the invocation does. Its grace covers the rest.
fn budget(mut context: Context) -> Budget {
    context.deadline = context.deadline.saturating_sub(TO_ANSWER.as_millis() as u64);
    Budget::from(&context).grace(DEFAULT_GRACE + TO_ANSWER)
}

async fn call(request: &Value, budget: &Budget, deps: &Deps) -> Result<Value, Failure> {
    let permit = deps.locks.semaphore(&deps.name, deps.connections).acquire().within(budget).await?;
    // The last look before the call: an invocation that stood still may have lost the place meanwhile.
    let patience = budget.remaining().unwrap_or_default();
    if let Err(error) = permit.ensure_remaining(patience) {
        release(permit).await;
        return Err(error.into());
    }
    let (place, fencing_token) = (permit.place(), permit.fencing_token());
    match deps.gateway.call(request, &permit, patience).await {
        Called::Ended(response) => {
            let after = release(permit).await;
            let response = response.map_err(|failure| failure.leaving(after))?;
            Ok(after.told_in(json!({ "place": place, "fencingToken": fencing_token, "response": response })))
        }
        // Nobody else gets the place while the gateway may still be at work.
        Called::MayStillRun(failure) => Err(failure.leaving(AfterWork::FreeBy(permit.lease_ends_at()))),
    }
}

/// Releases the place. A failure of the release is only logged, because the lease frees the place.
async fn release(permit: Permit) -> AfterWork {
    let ends = permit.lease_ends_at();
    match permit.release().await {
        Ok(ReleaseOutcome::Released) => AfterWork::Free,
        Ok(ReleaseOutcome::AlreadyGone) => {
            tracing::warn!("the place was no longer ours when the call ended");
            AfterWork::Lost
        }
        Err(error) => {
            tracing::warn!(%error, "the place was not released; its lease frees it");
            AfterWork::FreeBy(ends)
        }
    }
}
