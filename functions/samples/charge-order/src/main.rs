//! Idempotent work behind a lock: charges an order once, however often it is requested.
//!
//! `docs/samples.md` is its manual.

use charge_order::{Deps, handler};
use lambda_lock_functions::{process, serve, start};
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
