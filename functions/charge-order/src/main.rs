//! Idempotent work behind a lock: an order is charged once, however often it is asked for.
//! `docs/samples.md` is its manual.

use charge_order::{Deps, handler};
use lambda_lock_functions::{process, serve, start};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let deps = Deps::new(config, &process)?;
        serve(config, async |event| Box::pin(handler(event, &deps)).await).await
    })
    .await
}
