//! The DynamoDB client and the lock client, configured from the environment.
//!
//! The DynamoDB client starts in milliseconds. It reads no profile, because a function has its Region and
//! credentials in its environment. It loads Amazon's root certificates alone, because it connects to AWS alone.
//! Otherwise both would take most of a cold start.

use crate::config::{Config, ConfigError};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use lambda_lock::LockClient;
use lambda_lock::protocol::Schema;
use std::time::Duration;

/// The root certificates of Amazon Trust Services. The build script picks them out of Mozilla's.
const AMAZON_ROOTS: &str = include_str!(concat!(env!("OUT_DIR"), "/amazon-roots.pem"));

const ATTEMPT_TIMEOUT: Duration = lambda_lock::DEFAULT_REQUEST_TIMEOUT;
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

impl Config {
    /// Returns a DynamoDB client for the function's own requests. It is configured as the lock client's own. Sends
    /// no request.
    pub fn dynamodb(&self) -> Result<Client, ConfigError> {
        sdk_config(self).map(Client::from_conf)
    }

    /// The same client with the timeouts of a lock request: three attempts of 1 s each. Sends no request.
    pub fn impatient_dynamodb(&self) -> Result<Client, ConfigError> {
        let settings = sdk_config(self)?
            .to_builder()
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build())
            .retry_config(RetryConfig::standard().with_initial_backoff(FIRST_BACKOFF));
        Ok(Client::from_conf(settings.build()))
    }

    /// Returns a lock client of the configured table. Sends no request.
    pub fn locks(&self) -> Result<LockClient, ConfigError> {
        let Schema { key_attribute, sort_key_attribute, ttl, dialect } = &self.schema;
        let mut builder = LockClient::builder_from_conf(sdk_config(self)?, &self.table)
            .key_attribute(key_attribute)
            .dialect(*dialect);
        if let Some(name) = sort_key_attribute {
            builder = builder.sort_key_attribute(name);
        }
        if let Some(ttl) = ttl {
            builder = builder.ttl_attribute(&ttl.attribute);
        }
        builder = match self.max_clock_skew {
            Some(skew) => builder.max_clock_skew(skew),
            None => builder.without_wall_clock_takeover(),
        };
        // All other settings have been checked above.
        builder.build().map_err(|error| ConfigError::new(format!("LOCK_TABLE cannot be used: {error}")))
    }
}

fn sdk_config(config: &Config) -> Result<aws_sdk_dynamodb::Config, ConfigError> {
    let mut builder = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(config.region.clone())
        .credentials_provider(config.credentials.clone())
        .http_client(http()?);
    builder.set_endpoint_url(config.endpoint.clone());
    Ok(builder.build())
}

/// Also allows plain HTTP, to an endpoint that begins with `http://`. So the same binary runs in Lambda and on a
/// developer's machine.
fn http() -> Result<SharedHttpClient, ConfigError> {
    let roots = TrustStore::empty().with_pem_certificate(AMAZON_ROOTS);
    let context = TlsContext::builder().with_trust_store(roots).build();
    let context = context.map_err(|error| ConfigError::new(format!("TLS cannot be set up: {error}")))?;
    Ok(Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(context).build_https())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::error::SdkError;

    #[test]
    fn the_roots_are_amazons_five() {
        assert_eq!(AMAZON_ROOTS.matches("-----BEGIN CERTIFICATE-----").count(), 5);
        assert!(AMAZON_ROOTS.len() < 10_000, "{}", AMAZON_ROOTS.len());
    }

    /// The root certificates are read when the first connection is made. A certificate that cannot be read would
    /// panic there.
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
