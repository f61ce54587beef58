//! A function that starts like lock-task, but without lambda-lock.

use cold_start_bare::Bare;
use lambda_lock_functions::start;
use lambda_runtime::{run_concurrent, service_fn};
use std::process::ExitCode;
use std::sync::Arc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    start(async |config| {
        let bare = Arc::new(Bare::new(config.dynamodb()?)?);
        let handler = service_fn(move |event| {
            let bare = Arc::clone(&bare);
            async move { bare.handle(event).await }
        });
        run_concurrent(handler).await
    })
    .await
}
