//! Charges each order of an SQS queue once. The manual is `docs/samples.md`.

use charge_order::Deps;
use lambda_lock_functions::{process, serve, start};
use order_queue::handler;
use std::process::ExitCode;
use std::sync::Arc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let deps = Arc::new(Deps::new(config, &process)?);
        serve(config, move |event| {
            let deps = Arc::clone(&deps);
            async move { Box::pin(handler(event, &deps)).await }
        })
        .await
    })
    .await
}
