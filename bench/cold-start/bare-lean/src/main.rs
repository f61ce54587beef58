//! The same start as lock-task's, and no lambda-lock behind it.

use cold_start_bare::Bare;
use lambda_lock_functions::start;
use lambda_runtime::{run, service_fn};
use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let bare = Bare::new(config.dynamodb()?)?;
        run(service_fn(|event| bare.handle(event))).await
    })
    .await
}
