//! Stands for your work: the steps of the sample state machines, each of them fenced.
//! `docs/samples.md` is its manual.

mod counter;
mod handler;
mod request;
#[cfg(test)]
mod tests;

use crate::handler::{Deps, handler};
use lambda_lock_functions::{process, serve, start};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let deps = Deps::new(config, &process)?;
        serve(config, async |event| handler(event, &deps).await).await
    })
    .await
}
