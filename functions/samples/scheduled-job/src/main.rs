//! A job on a schedule that may start twice: at most one run at a time. The manual is
//! `docs/samples.md`.

mod handler;
#[cfg(test)]
mod tests;
mod tick;
mod work;

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
