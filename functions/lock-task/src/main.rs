//! Acquires, renews and releases locks, for Step Functions and for callers in any language. The manual is
//! `docs/lock-task.md`.

mod acquire;
mod deps;
mod handler;
mod lock;
mod observed;
mod peek;
mod refusal;
mod release;
mod renew;
#[cfg(test)]
mod tests;
mod time;
mod trust;
mod wait;
mod wanted;

use crate::deps::Deps;
use crate::handler::handler;
use lambda_lock_functions::run;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
