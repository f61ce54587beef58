//! Acquires, renews and releases locks, for Step Functions and for callers in any language. `docs/lock-task.md` is its manual.

mod acquire;
mod deps;
mod handler;
mod lock;
mod release;
mod renew;
#[cfg(test)]
mod tests;
mod time;

use crate::deps::Deps;
use crate::handler::handler;
use lambda_lock_functions::{process, serve, start};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let deps = Deps::new(config, &process)?;
        serve(async |event| handler(event, &deps).await).await
    })
    .await
}
