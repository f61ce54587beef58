//! The DynamoDB client and the lock client, configured from the environment.
//!
//! The DynamoDB client starts in milliseconds. It reads no profile, because a function has its Region and
//! credentials in its environment. It loads Amazon's root certificates alone, because it connects to AWS alone.
//! Otherwise both would take most of a cold start.

use crate::config::Config;
use crate::environment::ConfigError;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use lambda_lock::LockClient;
use lambda_lock_protocol::Schema;
use std::time::Duration;

/// The root certificates of Amazon Trust Services. The build script picks them out of Mozilla's: with all of those the first
/// answer takes 23 % longer (proof/bench/cold-start/README.md).
const AMAZON_ROOTS: &str = include_str!(concat!(env!("OUT_DIR"), "/amazon-roots.pem"));

const ATTEMPT_TIMEOUT: Duration = lambda_lock::LockClientBuilder::DEFAULT_REQUEST_TIMEOUT;
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

impl Config {
    /// Returns a DynamoDB client for the function's own requests. It is configured as the lock client's own. Sends
    /// no request.
    pub fn dynamodb(&self) -> Result<Client, ConfigError> {
        sdk_config(self).map(|config| Client::from_conf(config.build()))
    }

    /// The same client with the timeouts of a lock request: three attempts of 1 s each. Sends no request.
    pub fn impatient_dynamodb(&self) -> Result<Client, ConfigError> {
        let settings = sdk_config(self)?
            .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build())
            .retry_config(RetryConfig::standard().with_initial_backoff(FIRST_BACKOFF));
        Ok(Client::from_conf(settings.build()))
    }

    /// Returns the lock client of the configured table, each time the same one. Sends no request.
    pub fn locks(&self) -> Result<LockClient, ConfigError> {
        match self.locks_made() {
            Some(locks) => Ok(locks),
            None => self.make_locks().map(|locks| self.locks.get_or_init(|| locks).clone()),
        }
    }

    /// Returns the same lock client for keys that begin with this prefix, from `LOCK_KEY_PREFIX`. What the function
    /// reads after a restore (SnapStart) begins so too, because its role may allow no other keys. Sends no request.
    pub fn prefixed_locks(&self, prefix: &str) -> Result<LockClient, ConfigError> {
        let locks = self.make_locks()?.prefixed(prefix);
        let locks = locks.map_err(|error| ConfigError::new(format!("LOCK_KEY_PREFIX cannot be used: {error}")))?;
        Ok(self.locks.get_or_init(|| locks).clone())
    }

    /// The lock client, if the function has asked for it.
    pub(crate) fn locks_made(&self) -> Option<LockClient> {
        self.locks.get().cloned()
    }

    fn make_locks(&self) -> Result<LockClient, ConfigError> {
        let Schema { key_attribute, sort_key_attribute, ttl, dialect } = &self.schema;
        let mut builder = LockClient::builder(self.dynamodb()?, &self.table)
            .key_attribute(key_attribute)
            .dialect(*dialect)
            .operations_at_info();
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

fn sdk_config(config: &Config) -> Result<aws_sdk_dynamodb::config::Builder, ConfigError> {
    let http = http(config)?;
    let mut builder = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(config.region.clone())
        .credentials_provider(config.credentials.provider(&http))
        .http_client(http)
        .account_id_endpoint_mode(config.account_id_endpoint_mode.clone())
        .use_fips(config.fips)
        .use_dual_stack(config.dual_stack);
    builder.set_endpoint_url(config.endpoint.clone());
    Ok(builder)
}

/// Also allows plain HTTP, to an endpoint that begins with `http://`. So the same binary runs in Lambda and on a
/// developer's machine.
pub(crate) fn http(config: &Config) -> Result<SharedHttpClient, ConfigError> {
    let roots = TrustStore::empty().with_pem_certificate(config.roots.as_deref().unwrap_or(AMAZON_ROOTS));
    let context = TlsContext::builder().with_trust_store(roots).build();
    let context = context.map_err(|error| ConfigError::new(format!("TLS cannot be set up: {error}")))?;
    let provider = Provider::Rustls(CryptoMode::Ring);
    Ok(match config.proxy.clone() {
        None => Builder::new().tls_provider(provider).tls_context(context).build_https(),
        Some(proxy) => Builder::new().build_with_connector_fn(move |settings, components| {
            let mut connector = Connector::builder().proxy_config(proxy.clone());
            connector.set_connector_settings(settings.cloned());
            connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
            connector.tls_provider(provider.clone()).tls_context(context.clone()).build()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::variables;
    use aws_sdk_dynamodb::config::Credentials;
    use aws_sdk_dynamodb::error::{DisplayErrorContext, SdkError};
    use aws_smithy_runtime_api::client::http::{
        HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
    };
    use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
    use std::sync::{Arc, Mutex};
    use tokio::io::AsyncReadExt;

    #[test]
    fn the_roots_are_amazons_five() {
        assert_eq!(AMAZON_ROOTS.matches("-----BEGIN CERTIFICATE-----").count(), 5);
        assert!(AMAZON_ROOTS.len() < 10_000, "{}", AMAZON_ROOTS.len());
    }

    fn configured(more: &[(&str, &str)]) -> aws_sdk_dynamodb::config::Builder {
        let environment = [
            ("LOCK_TABLE", "locks"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let all = [&environment, more].concat();
        sdk_config(&Config::read(&variables(&all)).unwrap()).unwrap()
    }

    /// The root certificates are read when a connector is made. A certificate that cannot be read would panic there.
    #[tokio::test]
    async fn the_roots_can_be_read() {
        let config = configured(&[("AWS_ENDPOINT_URL", "https://127.0.0.1:1")]);
        let once = config.retry_config(RetryConfig::disabled()).build();
        let refused = Client::from_conf(once).list_tables().send().await;
        assert!(matches!(refused, Err(SdkError::DispatchFailure(_))), "{refused:?}");
    }

    /// Remembers the host, and answers nothing that could be used.
    #[derive(Clone, Debug, Default)]
    struct Hosts(Arc<Mutex<String>>);

    impl HttpConnector for Hosts {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            let uri: http::Uri = request.uri().parse().unwrap();
            *self.0.lock().unwrap() = uri.host().unwrap().to_owned();
            HttpConnectorFuture::ready(Ok(HttpResponse::new(400.try_into().unwrap(), "{}".into())))
        }
    }

    /// The host that a request for this table goes to, or why it is not sent.
    async fn host(mode: &str, table: &str, account: Option<&str>) -> Result<String, String> {
        host_with(&[("AWS_ACCOUNT_ID_ENDPOINT_MODE", mode)], table, account).await
    }

    async fn host_with(more: &[(&str, &str)], table: &str, account: Option<&str>) -> Result<String, String> {
        let hosts = Hosts::default();
        let connector = SharedHttpConnector::new(hosts.clone());
        let mut credentials =
            Credentials::builder().access_key_id("id").secret_access_key("secret").provider_name("test");
        credentials.set_account_id(account.map(Into::into));
        let config = configured(more)
            .credentials_provider(credentials.build())
            .http_client(http_client_fn(move |_, _| connector.clone()));
        let error = Client::from_conf(config.build()).describe_table().table_name(table).send().await.unwrap_err();
        let host = hosts.0.lock().unwrap().clone();
        if host.is_empty() { Err(DisplayErrorContext(&error).to_string()) } else { Ok(host) }
    }

    #[tokio::test]
    async fn with_dual_stack_requests_go_to_the_dual_stack_endpoint() {
        for (fips, expected) in [("", "dynamodb.eu-central-1.api.aws"), ("true", "dynamodb-fips.eu-central-1.api.aws")]
        {
            let more = [
                ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
                ("AWS_USE_FIPS_ENDPOINT", fips),
                ("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled"),
            ];
            assert_eq!(host_with(&more, "locks", None).await.as_deref(), Ok(expected));
        }
    }

    /// What a proxy is asked for first. `None` where it is not asked.
    async fn asked_of_the_proxy(name: &str, no_proxy: &str) -> Option<String> {
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let more = [(name, url.as_str()), ("NO_PROXY", no_proxy), ("AWS_ENDPOINT_URL", "https://dynamodb.invalid")];
        let client = Client::from_conf(configured(&more).retry_config(RetryConfig::disabled()).build());
        let asks = async {
            let (mut connection, _) = proxy.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let bytes = connection.read(&mut request).await.unwrap();
            String::from_utf8_lossy(&request[..bytes]).lines().next().map(str::to_owned)
        };
        tokio::select! {
            asked = asks => asked,
            _ = client.list_tables().send() => None,
        }
    }

    #[tokio::test]
    async fn requests_go_through_the_proxy_unless_their_host_is_excluded() {
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
            let asked = asked_of_the_proxy(name, "example.com").await;
            assert_eq!(asked.as_deref(), Some("CONNECT dynamodb.invalid:443 HTTP/1.1"), "{name}");
        }
        assert_eq!(asked_of_the_proxy("HTTPS_PROXY", "example.com,.invalid").await, None);
        assert_eq!(asked_of_the_proxy("HTTP_PROXY", "").await, None, "it is for plain HTTP");
    }

    #[tokio::test]
    async fn with_fips_requests_go_to_the_fips_endpoint() {
        for (mode, expected) in [
            ("disabled", "dynamodb-fips.eu-central-1.amazonaws.com"),
            ("preferred", "dynamodb-fips.eu-central-1.amazonaws.com"),
        ] {
            assert_eq!(
                host_with(&[("AWS_USE_FIPS_ENDPOINT", "true"), ("AWS_ACCOUNT_ID_ENDPOINT_MODE", mode)], "locks", None)
                    .await
                    .as_deref(),
                Ok(expected)
            );
        }
    }

    #[tokio::test]
    async fn a_bundle_of_certificates_replaces_amazons() {
        let path = std::env::temp_dir().join(format!("lambda-lock-roots-{}.pem", std::process::id()));
        let first = AMAZON_ROOTS.split_inclusive("-----END CERTIFICATE-----").next().unwrap();
        std::fs::write(&path, first).unwrap();
        let config = Config::read(&|name| {
            Ok(match name {
                "LOCK_TABLE" => Some("locks".to_owned()),
                "AWS_REGION" => Some("eu-central-1".to_owned()),
                "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("k".to_owned()),
                "AWS_CA_BUNDLE" => Some(path.to_str().unwrap().to_owned()),
                _ => None,
            })
        });
        std::fs::remove_file(&path).unwrap();
        assert_eq!(config.unwrap().roots.as_deref(), Some(first));
    }

    #[tokio::test]
    async fn the_account_is_part_of_the_host_as_the_mode_says_and_with_a_table_arn_without_an_account_id() {
        const ARN: &str = "arn:aws:dynamodb:eu-central-1:123456789012:table/locks";
        const OF_ACCOUNT: &str = "123456789012.ddb.eu-central-1.amazonaws.com";
        const OF_REGION: &str = "dynamodb.eu-central-1.amazonaws.com";
        let account = Some("123456789012");

        for (mode, table, account, expected) in [
            ("preferred", "locks", account, OF_ACCOUNT),
            ("preferred", "locks", None, OF_REGION),
            ("disabled", "locks", account, OF_REGION),
            ("required", "locks", account, OF_ACCOUNT),
            ("preferred", ARN, None, OF_ACCOUNT),
            ("required", ARN, None, OF_ACCOUNT),
            ("disabled", ARN, account, OF_REGION),
        ] {
            assert_eq!(host(mode, table, account).await.as_deref(), Ok(expected), "{mode} {table} {account:?}");
        }
        let error = host("required", "locks", None).await.unwrap_err();
        assert!(error.contains("AccountIdEndpointMode is required"), "{error}");
    }
}
