//! Wakes executions that sleep in line, when the lock table's stream shows that their lock was released by a program that
//! wakes nobody. The manual is `docs/operations.md`.

mod change;
mod handler;
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
            async move { handler(event, &deps).await }
        })
        .await
    })
    .await
}
