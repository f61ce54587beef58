//! A function that starts like lock-task, but without lambda-lock.

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
