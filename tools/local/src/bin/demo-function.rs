//! A function that holds a lock while it works in steps, for the demo and the tests. It is slow enough
//! to be killed, frozen or crashed during a step.
//!
//! ```json
//! { "key": "customer-7", "steps": [100, 250], "checkpoint": true, "write": true, "crashAt": 1 }
//! ```
//!
//! * `steps`: how many milliseconds each step takes. With `checkpoint` the lease is renewed after each of them.
//! * `crashAt`: the process exits (status 70) at the beginning of this step. The first step is 0.
//! * `panicAt`: the handler panics at the beginning of this step.
//! * `leaseMillis`: a lease of this length instead of one that follows the deadline.
//! * `withoutCut`: the work continues when its lease has ended.
//! * `write`: at the end, adds one to `count` of the item `id` = key in `COUNTER_TABLE` (`counters`), unless a larger
//!   fencing token has written it.
//!
//! * `places`: instead of all this, takes one of so many places of the semaphore `key`, and calls the gateway at
//!   `GATEWAY_URL` there. Returns `{"place":0,"fencingToken":…,"status":200}`.
//!
//! If `LEDGER` names a file, each step first adds a line to it: `{"key":…,"fencingToken":…,"step":0}`. These writes are
//! not fenced.
//!
//! Returns `{"key":…,"owner":…,"fencingToken":…,"steps":2,"written":true,"deadlineAt":…}`. `written` is
//! `false` when the write was refused, and `null` when the event asks for no write.

#![allow(clippy::disallowed_methods, reason = "its work is to wait")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_lock::{Budget, Lock, LockClient};
use lambda_lock_functions::{Config, ConfigError, Environment, Failure, Web, optional, run};
use lambda_lock_local::client;
use lambda_runtime::LambdaEvent;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const GATEWAY_URL: &str = "GATEWAY_URL";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Work {
    key: String,
    #[serde(default)]
    steps: Vec<u64>,
    #[serde(default)]
    checkpoint: bool,
    #[serde(default)]
    write: bool,
    crash_at: Option<usize>,
    panic_at: Option<usize>,
    lease_millis: Option<u64>,
    #[serde(default)]
    without_cut: bool,
    places: Option<u32>,
}

struct Deps {
    locks: LockClient,
    dynamodb: Client,
    counter_table: String,
    ledger: Option<PathBuf>,
    gateway: Option<Web>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}

impl Deps {
    fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let endpoint = optional(environment, "AWS_ENDPOINT_URL_DYNAMODB")?;
        let endpoint = endpoint.ok_or_else(|| ConfigError::new("AWS_ENDPOINT_URL_DYNAMODB is not set"))?;
        let counter_table = optional(environment, "COUNTER_TABLE")?.unwrap_or_else(|| "counters".to_owned());
        let ledger = optional(environment, "LEDGER")?.map(PathBuf::from);
        let gateway = optional(environment, GATEWAY_URL)?.map(|url| Web::new(GATEWAY_URL, &url)).transpose()?;
        Ok(Self { locks: config.locks()?, dynamodb: client(&endpoint), counter_table, ledger, gateway })
    }
}

async fn handler(event: LambdaEvent<Work>, deps: &Deps) -> Result<Value, Failure> {
    let budget = Budget::from(&event.context);
    let work = &event.payload;
    if let Some(places) = work.places {
        return work.call(places, &budget, deps).await;
    }
    let mut acquire = deps.locks.acquire(work.key.as_str()).within(&budget);
    if let Some(millis) = work.lease_millis {
        acquire = acquire.lease(Duration::from_millis(millis));
    }
    let mut answer = if work.without_cut {
        acquire.await?.run_without_cut(async |lock| work.run(lock, deps).await).await?
    } else {
        acquire.await?.run(async |lock| work.run(lock, deps).await).await?
    };
    answer["deadlineAt"] = event.context.deadline.into();
    Ok(answer)
}

impl Work {
    async fn run(&self, lock: &mut Lock, deps: &Deps) -> Result<Value, Failure> {
        tracing::info!(owner = lock.owner(), fencing_token = lock.fencing_token(), "{} is held", self.key);
        for (number, millis) in self.steps.iter().enumerate() {
            self.note(number, lock.fencing_token(), deps)?;
            tracing::info!("step {number} of {}", self.key);
            if self.crash_at == Some(number) {
                tracing::info!("step {number} of {} crashes", self.key);
                std::process::exit(70);
            }
            assert_ne!(self.panic_at, Some(number), "as the event asked for");
            tokio::time::sleep(Duration::from_millis(*millis)).await;
            if self.checkpoint {
                lock.checkpoint().await?;
            }
        }
        let written = if self.write { Some(self.write(lock.fencing_token(), deps).await?) } else { None };
        Ok(json!({
            "key": self.key,
            "owner": lock.owner(),
            "fencingToken": lock.fencing_token(),
            "steps": self.steps.len(),
            "written": written,
        }))
    }

    /// Calls the gateway, with at most so many calls inside at once.
    async fn call(&self, places: u32, budget: &Budget, deps: &Deps) -> Result<Value, Failure> {
        let gateway = deps.gateway.as_ref().ok_or_else(|| Failure::invalid_request("GATEWAY_URL is not set"))?;
        let permit = deps.locks.semaphore(self.key.as_str(), places).acquire().within(budget).await?;
        let patience = budget.remaining().unwrap_or_default();
        permit.ensure_remaining(patience)?;
        let called = gateway.post("/calls", &[], "{}".to_owned(), patience).await;
        // Without an answer the call may still be inside: its place is left to the lease.
        let status = called.map_err(|error| Failure::work_failed(&error))?.status;
        let answer = json!({ "place": permit.place(), "fencingToken": permit.fencing_token(), "status": status });
        permit.release().await?;
        Ok(answer)
    }

    /// Adds a line to the ledger, in one piece.
    fn note(&self, step: usize, token: u64, deps: &Deps) -> Result<(), Failure> {
        let Some(ledger) = &deps.ledger else { return Ok(()) };
        let line = json!({ "key": self.key, "fencingToken": token, "step": step });
        let file = OpenOptions::new().create(true).append(true).open(ledger);
        let noted = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        noted.map_err(|error| Failure::work_failed(&format!("the ledger could not be written: {error}")))
    }

    /// Writes the counter. Returns whether the write was applied.
    async fn write(&self, token: u64, deps: &Deps) -> Result<bool, Failure> {
        let update = deps
            .dynamodb
            .update_item()
            .table_name(&deps.counter_table)
            .key("id", AttributeValue::S(self.key.clone()))
            .update_expression("SET #last = :token ADD #count :one")
            .condition_expression("attribute_not_exists(#last) OR #last <= :token")
            .expression_attribute_names("#last", "lastToken")
            .expression_attribute_names("#count", "count")
            .expression_attribute_values(":token", AttributeValue::N(token.to_string()))
            .expression_attribute_values(":one", AttributeValue::N("1".to_owned()));
        match update.send().await.map_err(|error| error.into_service_error()) {
            Ok(_) => Ok(true),
            Err(error) if error.is_conditional_check_failed_exception() => {
                tracing::info!("the write of {} with the token {token} was refused", self.key);
                Ok(false)
            }
            Err(error) => Err(Failure::work_failed(&format!("the counter could not be written: {error}"))),
        }
    }
}
