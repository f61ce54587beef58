//! Wakes executions that sleep in line, when the lock table's stream shows that their lock was released by a program that
//! wakes nobody. The manual is `docs/operations.md`.

mod change;
mod handler;
#[cfg(test)]
mod tests;

use crate::handler::{Deps, handler};
use lambda_lock_functions::run;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
