//! Two ways to run a Lambda handler under a lock: `with_lock` within the `Budget` of the invocation, and a `LockLayer`
//! around the whole handler. Lambda would invoke the handlers. Here `main` does it, with contexts of its own.
//!
//! Run it with `cargo run --example lambda-handler`. It needs no AWS account.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use lambda_lock::lambda::{LockLayer, Locked};
use lambda_lock::{Budget, Error, LockClient};
use lambda_lock_local::LocalDynamoDb;
use lambda_runtime::{Config, Context, LambdaEvent, service_fn};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;
use tower::{Layer, ServiceExt};

#[derive(Deserialize)]
struct Request {
    customer: String,
}

/// Acquires the lock itself. In Lambda: `run(service_fn(async |event| statement(event, &locks).await))`.
async fn statement(event: LambdaEvent<Request>, locks: &LockClient) -> Result<String, Error> {
    let budget = Budget::from(&event.context); // ends at the deadline of this invocation
    let customer = &event.payload.customer;
    locks
        .with_lock(customer, &budget, async |lock| {
            sleep(Duration::from_millis(50)).await; // the first step of the work
            lock.checkpoint().await?; // `Lost`: stop, the lock is no longer ours
            Ok(format!("statement of {customer}, made by {}", lock.owner()))
        })
        .await
}

/// Runs behind a `LockLayer`, which acquires and releases the lock. In Lambda: `run(layer.layer(service_fn(export)))`.
async fn export(event: LambdaEvent<Locked<Request>>) -> Result<String, Error> {
    let Locked { payload, grant } = event.payload;
    sleep(Duration::from_millis(500)).await; // the work
    Ok(format!("exported {} under fencing token {}", payload.customer, grant.fencing_token()))
}

/// An event, and the context of an invocation with a timeout of 10 s.
fn event(function: &str, request_id: &str) -> Result<LambdaEvent<Request>, Box<dyn std::error::Error>> {
    let deadline = SystemTime::now() + Duration::from_secs(10);
    let mut context = Context::default();
    context.deadline = deadline.duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64;
    context.request_id = request_id.to_owned();
    context.env_config = Arc::new(Config { function_name: function.to_owned(), ..Config::default() });
    Ok(LambdaEvent::new(serde_json::from_str(r#"{"customer": "customer-7"}"#)?, context))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?; // name and partition key of each table

    let locks = LockClient::builder(local.client(), "locks").build()?;
    let answer = statement(event("statements", "request-1")?, &locks).await?;
    println!("{answer}");
    assert!(answer.contains("made by statements/request-1/"), "the lock has another owner");

    let layer = LockLayer::new(locks, |request: &Request| request.customer.as_str().into())
        .without_waiting()
        .when_held(|held| format!("busy: {} has the lock", held.holder));
    let export = layer.layer(service_fn(export));
    let first = export.clone().oneshot(event("exports", "request-2")?);
    let second = export.oneshot(event("exports", "request-3")?);
    let answers: [String; 2] = tokio::try_join!(first, second)?.into();
    println!("{}\n{}", answers[0], answers[1]);
    assert!(answers.iter().any(|answer| answer.starts_with("exported")), "neither handler exported anything");
    assert!(answers.iter().any(|answer| answer.starts_with("busy")), "both handlers ran at the same time");
    Ok(())
}
