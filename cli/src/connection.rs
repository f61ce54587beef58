//! Where the table is, and how the client is configured.

use crate::exit::Failure;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::ProvideCredentials;
use aws_smithy_http_client::tls;
use clap::ValueEnum;
use lambda_lock::protocol::Schema;
use lambda_lock::{Dialect, LockClient};
use std::time::Duration;

/// Which table, and with which settings. They must be those of the other callers.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Table")]
pub(crate) struct Options {
    /// The lock table.
    #[arg(long, env = "LOCK_TABLE", hide_env_values = true, default_value = "locks")]
    table: String,
    /// The name of the table's partition key.
    #[arg(
        long,
        env = "LOCK_KEY_ATTRIBUTE",
        hide_env_values = true,
        global = true,
        value_name = "NAME",
        default_value = "key"
    )]
    key_attribute: String,
    /// The name of the table's sort key, where it has one.
    #[arg(long, env = "LOCK_SORT_KEY_ATTRIBUTE", hide_env_values = true, value_name = "NAME")]
    sort_key_attribute: Option<String>,
    /// The table's TTL attribute, where it has one. The stack's table has expiresAt.
    #[arg(long, env = "LOCK_TTL_ATTRIBUTE", hide_env_values = true, value_name = "NAME")]
    ttl_attribute: Option<String>,
    /// By how many milliseconds two wall clocks may differ. With off, nobody is dead by the wall clock.
    #[arg(long, env = "LOCK_MAX_CLOCK_SKEW_MS", hide_env_values = true, value_name = "MS")]
    #[arg(value_parser = max_clock_skew, default_value = "2000")]
    max_clock_skew_ms: MaxClockSkew,
    /// How the lease is written: as the Java client reads it, or as the Go client does.
    #[arg(long, env = "LOCK_LEASE_DIALECT", hide_env_values = true, value_enum, default_value_t = Leases::Java)]
    lease_dialect: Leases,
    /// The profile in the configuration files of AWS. Its credentials are used, also where others are in the environment.
    #[arg(long)]
    profile: Option<String>,
    /// The Region of the table.
    #[arg(long, env = "AWS_REGION", hide_env_values = true)]
    region: Option<String>,
    /// Another DynamoDB, such as that of cargo local.
    #[arg(long, env = "AWS_ENDPOINT_URL_DYNAMODB", hide_env_values = true, value_name = "URL")]
    endpoint_url: Option<String>,
}

/// By how much two wall clocks may differ, or that no wall clock counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxClockSkew(pub(crate) Option<Duration>);

fn max_clock_skew(text: &str) -> Result<MaxClockSkew, String> {
    if text == "off" {
        return Ok(MaxClockSkew(None));
    }
    let millis = text.parse().map_err(|_| "give whole milliseconds, or off".to_owned())?;
    Ok(MaxClockSkew(Some(Duration::from_millis(millis))))
}

/// How long one response may take. By default the SDK waits for ever. A page of a table has 1 MB.
const ATTEMPT: Duration = Duration::from_secs(10);

/// How long is waited for services that only add to what is shown. They may not be reachable from here.
fn of_others() -> TimeoutConfig {
    TimeoutConfig::builder().operation_timeout(Duration::from_secs(5)).build()
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Leases {
    Java,
    Go,
}

impl Options {
    /// The configuration of AWS. It may ask for credentials.
    pub(crate) async fn config(&self) -> Result<SdkConfig, Failure> {
        let https = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
            .build_https();
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).build();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(https).timeout_config(timeouts);
        if let Some(profile) = &self.profile {
            // As the AWS command line does it, and unlike the SDK: who names a profile means that account.
            let credentials = ProfileFileCredentialsProvider::builder().profile_name(profile).build();
            loader = loader.profile_name(profile).credentials_provider(credentials);
        }
        // The AWS command line knows the second variable, and the SDK does not.
        let region = self.region.clone().or_else(|| std::env::var("AWS_DEFAULT_REGION").ok());
        if let Some(region) = region {
            loader = loader.region(Region::new(region));
        }
        let config = loader.load().await;
        if config.region().is_none() {
            return Err(Failure::Usage("no Region is known: give --region, or set AWS_REGION".to_owned()));
        }
        // Otherwise each request would end as one without a response.
        if let Some(credentials) = config.credentials_provider() {
            let profile = self.profile.as_deref();
            let provided = credentials.provide_credentials().await;
            provided.map_err(|error| Failure::without_credentials(profile, &error))?;
        }
        Ok(config)
    }

    /// A client of Step Functions. `None` where DynamoDB is another one than that of AWS, and Step Functions is not given.
    pub(crate) fn step_functions(&self, config: &SdkConfig) -> Option<aws_sdk_sfn::Client> {
        self.is_known(config, "AWS_ENDPOINT_URL_SFN").then(|| {
            let config = aws_sdk_sfn::config::Builder::from(config).timeout_config(of_others());
            aws_sdk_sfn::Client::from_conf(config.build())
        })
    }

    /// A client of CloudFormation, as with [`Self::step_functions`].
    pub(crate) fn cloud_formation(&self, config: &SdkConfig) -> Option<aws_sdk_cloudformation::Client> {
        self.is_known(config, "AWS_ENDPOINT_URL_CLOUDFORMATION").then(|| {
            let config = aws_sdk_cloudformation::config::Builder::from(config).timeout_config(of_others());
            aws_sdk_cloudformation::Client::from_conf(config.build())
        })
    }

    /// Whether it is known where a service is. Nobody who gives a DynamoDB of his own wants to send anything to AWS.
    fn is_known(&self, config: &SdkConfig, variable: &str) -> bool {
        self.endpoint_url.is_none() || config.endpoint_url().is_some() || std::env::var_os(variable).is_some()
    }

    pub(crate) fn dynamodb(&self, config: &SdkConfig) -> Client {
        let mut config = aws_sdk_dynamodb::config::Builder::from(config);
        if let Some(url) = &self.endpoint_url {
            config = config.endpoint_url(url);
        }
        Client::from_conf(config.build())
    }

    /// The client. It sends nothing yet, but may ask for credentials.
    pub(crate) async fn open(&self) -> Result<LockClient, Failure> {
        let dynamodb = self.dynamodb(&self.config().await?);
        let mut builder = LockClient::builder(dynamodb, &self.table).key_attribute(&self.key_attribute).dialect(
            match self.lease_dialect {
                Leases::Java => Dialect::Java,
                Leases::Go => Dialect::Go,
            },
        );
        builder = match self.max_clock_skew() {
            Some(skew) => builder.max_clock_skew(skew),
            None => builder.without_wall_clock_takeover(),
        };
        if let Some(name) = &self.sort_key_attribute {
            builder = builder.sort_key_attribute(name);
        }
        if let Some(ttl) = &self.ttl_attribute {
            builder = builder.ttl_attribute(ttl);
        }
        Ok(builder.build()?)
    }

    pub(crate) fn ttl_attribute(&self) -> Option<&str> {
        self.ttl_attribute.as_deref()
    }

    /// The names of the table's key attributes.
    pub(crate) fn schema(&self) -> Schema {
        Schema {
            key_attribute: self.key_attribute.clone(),
            sort_key_attribute: self.sort_key_attribute.clone(),
            ..Schema::default()
        }
    }

    pub(crate) fn endpoint_url(&self) -> Option<&str> {
        self.endpoint_url.as_deref()
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn max_clock_skew(&self) -> Option<Duration> {
        self.max_clock_skew_ms.0
    }
}
