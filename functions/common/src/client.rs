//! The configuration of a DynamoDB client that starts in milliseconds.
//!
//! A function has its Region and credentials in its environment and needs no profile, and it talks to
//! AWS alone and needs no other roots than Amazon's: looking for the one and loading the others would
//! be most of a cold start.

use crate::config::{Config, ConfigError};
use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::SharedHttpClient;

/// The roots of Amazon Trust Services, picked out of Mozilla's by the build script.
const AMAZON_ROOTS: &str = include_str!(concat!(env!("OUT_DIR"), "/amazon-roots.pem"));

pub(crate) fn sdk_config(config: &Config) -> Result<aws_sdk_dynamodb::Config, ConfigError> {
    let mut builder = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(config.region.clone())
        .credentials_provider(config.credentials.clone())
        .http_client(http()?);
    builder.set_endpoint_url(config.endpoint.clone());
    Ok(builder.build())
}

/// Speaks plain HTTP as well, to an endpoint that says so: what is tried on a developer's machine is then
/// what runs in Lambda.
fn http() -> Result<SharedHttpClient, ConfigError> {
    let roots = TrustStore::empty().with_pem_certificate(AMAZON_ROOTS);
    let context = TlsContext::builder().with_trust_store(roots).build();
    let context = context.map_err(|error| ConfigError::new(format!("TLS cannot be set up: {error}")))?;
    Ok(Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(context).build_https())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::Client;
    use aws_sdk_dynamodb::config::retry::RetryConfig;
    use aws_sdk_dynamodb::error::SdkError;

    #[test]
    fn the_roots_are_amazons_five() {
        assert_eq!(AMAZON_ROOTS.matches("-----BEGIN CERTIFICATE-----").count(), 5);
        assert!(AMAZON_ROOTS.len() < 10_000, "{}", AMAZON_ROOTS.len());
    }

    /// The roots are read when the first connection is made, and one that cannot be read would panic
    /// there.
    #[tokio::test]
    async fn the_roots_can_be_read() {
        let environment = [
            ("LOCK_TABLE", "locks"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_ENDPOINT_URL", "https://127.0.0.1:1"),
        ];
        let value = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        let config = sdk_config(&Config::read(&|name| Ok(value(name))).unwrap()).unwrap();
        let once = config.to_builder().retry_config(RetryConfig::disabled()).build();
        let refused = Client::from_conf(once).list_tables().send().await;
        assert!(matches!(refused, Err(SdkError::DispatchFailure(_))), "{refused:?}");
    }
}
