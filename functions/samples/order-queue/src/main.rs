//! Charges each order of an SQS queue once. The manual is `docs/samples.md`.

use charge_order::Deps;
use lambda_lock_functions::run;
use order_queue::handler;
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    run(Deps::new, handler).await
}
