//! DynamoDB clients for an endpoint on this machine. They use plain HTTP and made-up credentials.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Config, Credentials, Region};

/// Returns a client for this endpoint, such as `http://127.0.0.1:8000`.
pub fn client(endpoint: &str) -> Client {
    Client::from_conf(config(endpoint).build())
}

/// Returns the configuration of such a client, so that a caller can add to it.
///
/// It has no TLS, so the endpoint must begin with `http://`.
pub fn config(endpoint: &str) -> Builder {
    Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .endpoint_url(endpoint)
        .region(Region::from_static("local"))
        .credentials_provider(Credentials::new("local", "local", None, None, "lambda-lock-local"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
}
