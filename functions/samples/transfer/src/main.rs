//! Moves an amount between two accounts, exactly once, however often the transfer is requested. The manual is
//! `docs/samples.md`.

mod accounts;
mod handler;
mod request;
#[cfg(test)]
mod tests;

use crate::handler::{Deps, handler};
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
