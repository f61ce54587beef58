//! Orders from an SQS queue, each charged once. `docs/samples.md` is its manual.

use charge_order::Deps;
use lambda_lock_functions::{process, serve, start};
use order_queue::handler;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let deps = Deps::new(config, &process)?;
        serve(config, async |event| Box::pin(handler(event, &deps)).await).await
    })
    .await
}
