//! Releases the locks of executions that ended without releasing them: executions of state machines and of durable
//! functions. The manual is `docs/operations.md`.

mod ended;
mod handler;
mod index;
#[cfg(test)]
mod tests;

use crate::handler::{Deps, handler};
use lambda_lock_functions::run;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
