//! A function as the template of `cargo lambda new` and the SDK's guide write it.

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use cold_start_bare::Bare;
use lambda_runtime::{Error, run, service_fn, tracing};

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let config = aws_config::load_defaults(BehaviorVersion::latest()).await;
    let bare = Bare::new(Client::new(&config))?;
    run(service_fn(|event| bare.handle(event))).await
}
