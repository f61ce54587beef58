//! A job on a schedule that may start twice: at most one run at a time. The manual is
//! `docs/samples.md`.

mod handler;
#[cfg(test)]
mod tests;
mod tick;
mod work;

use crate::handler::{Deps, handler};
use lambda_lock_functions::run;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
