//! Releases the locks of Step Functions executions that ended without releasing them.
//! `docs/operations.md` is its manual.

mod ended;
mod handler;
mod index;
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
