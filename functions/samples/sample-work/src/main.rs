//! A placeholder for your work: the steps of the sample state machines, each of them fenced.
//!
//! `docs/samples.md` is its manual.

mod counter;
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
            async move { handler(event, &deps).await }
        })
        .await
    })
    .await
}
