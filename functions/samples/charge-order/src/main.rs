//! Idempotent work behind a lock: charges an order once, however often it is requested.
//!
//! `docs/samples.md` is its manual.

use charge_order::{Deps, handler};
use lambda_lock_functions::run;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
