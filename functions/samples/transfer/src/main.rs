//! Moves an amount between two accounts, exactly once, however often the transfer is requested. The manual is
//! `docs/samples.md`.

mod accounts;
mod handler;
mod request;
#[cfg(test)]
mod tests;

use crate::handler::{Deps, handler};
use lambda_lock_functions::run;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
