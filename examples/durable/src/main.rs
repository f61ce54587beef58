//! A durable function that works on one customer at a time. Each step gets a fencing token. The lock is held during the
//! wait between the steps, in which nothing runs.

use aws_config::BehaviorVersion;
use aws_durable_execution_sdk::{BoxError, DurableContext};
use durable_lock::with_lock;
use lambda_lock::{Lock, LockClient};
use serde::Deserialize;
use std::time::Duration;

/// Longer than the wait between the two steps, and than each of them.
const LEASE: Duration = Duration::from_secs(15 * 60);

#[derive(Deserialize)]
struct Event {
    customer: String,
}

// Your own steps.
async fn start_export(_customer: String, _fencing_token: u64) -> Result<String, BoxError> {
    Ok("export-7".to_owned())
}
async fn save_export(_export: String, _fencing_token: u64) -> Result<(), BoxError> {
    Ok(())
}

async fn handler(event: Event, ctx: DurableContext, locks: LockClient) -> Result<String, BoxError> {
    with_lock(&ctx, &locks, format!("export/{}", event.customer), LEASE, async |lock| {
        let customer = event.customer.clone();
        let start = move |lock: Lock| {
            let customer = customer.clone();
            async move { Ok((start_export(customer, lock.fencing_token()).await?, lock)) }
        };
        let export = lock.step("start", start).await?;

        ctx.wait(Duration::from_secs(10 * 60)).await?;

        let started = export.clone();
        let save = move |lock: Lock| {
            let export = started.clone();
            async move { Ok((save_export(export, lock.fencing_token()).await?, lock)) }
        };
        lock.step("save", save).await?;
        Ok(export)
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
    let table = std::env::var("LOCK_TABLE")?;
    let locks = LockClient::builder(aws_sdk_dynamodb::Client::new(&config), table).build()?;
    aws_durable_execution_sdk::run(move |event, ctx| handler(event, ctx, locks.clone())).await
}
