//! Calls a gateway that takes a limited number of connections: at most that many calls at once, over all processes. The
//! manual is `docs/samples.md`.

mod gateway;
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
