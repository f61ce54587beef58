//! What every `main` does: logs, configuration, and the runtime.

use crate::config::Config;
use crate::failure::Failure;
use lambda_runtime::{LambdaEvent, service_fn};
use serde::Serialize;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

/// Sets logs up, reads the environment, and hands it to the function. What keeps it from starting is
/// one line in its log.
pub async fn start(run: impl AsyncFnOnce(&Config) -> Result<(), lambda_runtime::Error>) -> ExitCode {
    log_json();
    let started = async {
        let config = Config::from_env()?;
        run(&config).await
    };
    match started.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the function cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers invocations until Lambda stops asking. The runtime logs failures as they leave.
pub async fn serve<A, R>(
    handler: impl AsyncFn(LambdaEvent<A>) -> Result<R, Failure>,
) -> Result<(), lambda_runtime::Error>
where
    A: for<'de> serde::Deserialize<'de>,
    R: Serialize,
{
    lambda_runtime::run(service_fn(|event| handler(event))).await
}

/// One JSON object per line. Never more than INFO, whatever Lambda's log level says: below that, the
/// runtime and the SDK write payloads.
fn log_json() {
    let level = match std::env::var("AWS_LAMBDA_LOG_LEVEL").as_deref() {
        Ok("ERROR" | "FATAL") => LevelFilter::ERROR,
        Ok("WARN") => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    };
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(level);
    // Only a second subscriber in one process can fail, and a function has none.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
}
