//! A placeholder for your work: the steps of the sample state machines, each of them fenced.
//!
//! `docs/samples.md` is its manual.

mod counter;
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
