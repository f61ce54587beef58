//! A job on a schedule that may fire twice: at most one run at a time. `docs/samples.md` is its manual.

mod handler;
#[cfg(test)]
mod tests;
mod work;

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
