//! Where the table is, and how the client is configured.

use crate::credentials;
use crate::exit::{self, Failure};
use crate::https;
use crate::request_id::RequestIds;
use crate::screen;
use aws_config::profile::{self, ProfileFileCredentialsProvider, ProfileFileLoadError, ProfileSet};
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::{RetryConfig, RetryMode};
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_runtime::env_config::file::EnvConfigFiles;
use aws_sdk_dynamodb::Client;
use aws_types::os_shim_internal::{Env, Fs};
use aws_types::service_config::ServiceConfigKey;
use clap::ValueEnum;
use lambda_lock::{Dialect, LockClient, LockClientBuilder, LockKey};
use lambda_lock_protocol::Schema;
use std::time::Duration;
use tokio::sync::OnceCell;

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
    /// Another DynamoDB, such as that of cargo local. By default the one that AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL or the
    /// profile names.
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
    /// How many milliseconds a response about a lock may take, from 100 to 5000, also where its connection must be opened first, as
    /// through a proxy. By default 3000, and for run a twentieth of the lease, but 1000 at least.
    #[arg(long, env = "LOCK_REQUEST_TIMEOUT_MS", hide_env_values = true, value_name = "MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(100..=5000))]
    request_timeout_ms: Option<u64>,
    /// What all clients of a command share, so that credentials are asked for once: a code of an MFA device counts once.
    #[arg(skip)]
    config: OnceCell<SdkConfig>,
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

/// Checks that an endpoint is one, which comes from somewhere. The SDK leaves out one that is none, and would ask AWS instead.
fn check_endpoint(service: &str, url: &str, from: &str) -> Result<(), Failure> {
    let is_one = url.parse::<http::Uri>().is_ok_and(|url| {
        let has_port =
            url.authority().zip(url.host()).is_some_and(|(authority, host)| !authority.as_str().ends_with(host));
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
            && (!has_port || url.port_u16().is_some())
    });
    if is_one {
        return Ok(());
    }
    // Before the host there may be a password, and behind it a token.
    let shown = match url.rsplit_once('@') {
        Some((before, host)) => {
            let scheme = before.split_once("://").map(|(scheme, _)| format!("{scheme}://")).unwrap_or_default();
            format!("{scheme}***@{host}")
        }
        None => url.to_owned(),
    };
    let shown = shown.split_once('?').map_or(shown.clone(), |(place, _)| format!("{place}?***"));
    Err(Failure::Usage(format!(
        "{shown:?} is no endpoint of {service}: give a URL with its scheme, such as http://127.0.0.1:8000, in {from}"
    )))
}

/// Checks what becomes a part of the endpoint's name. Otherwise no request would be sent, as if access were denied.
fn check_region(region: Option<&Region>) -> Result<(), Failure> {
    let Some(region) = region.map(Region::as_ref) else {
        return Err(Failure::Usage("no Region is known: give --region, or set AWS_REGION".to_owned()));
    };
    let is_label = |label: &str| {
        (1..64).contains(&label.len())
            && !label.starts_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    if region.split('.').all(is_label) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{region:?} is no Region: give one such as eu-central-1 with --region, or in AWS_REGION, AWS_DEFAULT_REGION or the profile"
    )))
}

/// The services that are asked, as the SDK names them.
const SERVICES: [&str; 8] =
    ["CloudFormation", "DynamoDB", "DynamoDB Streams", "SFN", "Signin", "SSO", "SSO OIDC", "STS"];

/// How long the response to a request about a lock may take, also where its connection must be opened first: through a slow proxy
/// that takes several round trips. Where nobody responds, a command takes three times as long.
const RESPONSE: Duration = Duration::from_secs(3);
/// How long any other response may take. By default the SDK waits for ever. A page of a table has 1 MB.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a request may take with its retries.
const REQUEST: Duration = Duration::from_secs(10);

/// How long is waited for services that only add to what is shown. They may not be reachable from here.
fn of_others() -> TimeoutConfig {
    TimeoutConfig::builder().operation_timeout(Duration::from_secs(5)).build()
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Leases {
    Java,
    Go,
}

/// The endpoint that is configured for a service, in variables or in the profile, unless such ones are to be ignored.
fn configured(config: &SdkConfig, service: &str) -> Option<String> {
    let key = ServiceConfigKey::builder().service_id(service).env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
    key.ok().and_then(|key| config.service_config()?.load_config(key))
}

fn check_endpoints(config: &SdkConfig) -> Result<(), Failure> {
    for service in SERVICES {
        if let Some(url) = configured(config, service) {
            let variable = service.to_uppercase().replace(' ', "_");
            let from = format!("AWS_ENDPOINT_URL_{variable}, AWS_ENDPOINT_URL or endpoint_url of the profile");
            check_endpoint(service, &url, &from)?;
        }
    }
    Ok(())
}

/// Fails where half of the credentials in the environment is missing, as the AWS command line does. The SDK would take others, which
/// may be those of another account.
fn check_keys(profile: Option<&str>) -> Result<(), Failure> {
    let is_set = |name| std::env::var_os(name).is_some();
    if profile.is_none() && is_set("AWS_ACCESS_KEY_ID") && !is_set("AWS_SECRET_ACCESS_KEY") {
        let message = "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not: set both or none".to_owned();
        return Err(Failure::Sdk { message, code: exit::DENIED });
    }
    Ok(())
}

/// How often the SDK sends a request, from where the AWS command line takes it. The SDK panics at what it does not know.
fn retries(profile: Option<&ProfileSet>) -> Result<RetryConfig, Failure> {
    let setting = |variable: &str, key: &str| {
        let of_variable = std::env::var(variable).ok().map(|value| (variable.to_owned(), value));
        of_variable.or_else(|| Some((format!("{key} of the profile"), profile?.get(key)?.to_owned())))
    };
    let mut retries = RetryConfig::standard();
    if let Some((from, mode)) = setting("AWS_RETRY_MODE", "retry_mode") {
        retries = match mode.trim().to_lowercase().as_str() {
            // The SDK has no mode for the first clients of AWS.
            "standard" | "legacy" => retries,
            "adaptive" => retries.with_retry_mode(RetryMode::Adaptive),
            _ => return Err(Failure::Usage(format!("{mode:?} is no retry mode: give standard or adaptive in {from}"))),
        };
    }
    if let Some((from, attempts)) = setting("AWS_MAX_ATTEMPTS", "max_attempts") {
        let number = attempts.trim().parse().ok().filter(|number| *number > 0);
        let wrong = || Failure::Usage(format!("{attempts:?} is no number of attempts: give 1 or more in {from}"));
        retries = retries.with_max_attempts(number.ok_or_else(wrong)?);
    }
    Ok(retries)
}

/// Reads the configuration, for the options of these names.
async fn read(profile: Option<String>, region: Option<String>) -> Result<SdkConfig, Failure> {
    // The AWS command line knows the first variable, and the SDK does not.
    let variables = ["AWS_DEFAULT_PROFILE", "AWS_PROFILE"];
    let name = profile.clone().or_else(|| variables.into_iter().find_map(|name| std::env::var(name).ok()));
    let given = name.clone().map(Into::into);
    let files = match profile::load(&Fs::real(), &Env::real(), &EnvConfigFiles::default(), given).await {
        Ok(files) => Some(files),
        // Whatever stands there would be ignored.
        Err(error @ ProfileFileLoadError::ParseError { .. }) => {
            return Err(Failure::Usage(format!("the configuration files of AWS: {}", exit::with_causes(&error))));
        }
        // The loader below does without too.
        Err(ProfileFileLoadError::CouldNotReadFile { .. }) => None,
    };
    if let (Some(name), Some(files)) = (&name, &files)
        && files.get_profile(name).is_none()
    {
        return Err(Failure::without_profile(name));
    }
    let https = https::client(files.as_ref())?;
    let timeouts = TimeoutConfig::builder().connect_timeout(ATTEMPT).operation_attempt_timeout(ATTEMPT);
    let timeouts = timeouts.operation_timeout(REQUEST).build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(https.clone());
    loader = loader.timeout_config(timeouts.clone()).retry_config(retries(files.as_ref())?);
    if let Some(name) = name {
        loader = loader.profile_name(name);
    }
    // The AWS command line knows the second variable, and the SDK does not.
    let region = region.or_else(|| std::env::var("AWS_DEFAULT_REGION").ok());
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    let config = loader.load().await;
    check_region(config.region())?;
    check_endpoints(&config)?;
    // As the AWS command line does it, and unlike the SDK: who names a profile means that account.
    let Some(profile) = profile else { return Ok(config) };
    let with = ProviderConfig::default().with_http_client(https).with_timeout_config(timeouts);
    let with = with.with_region(config.region().cloned());
    let provider = ProfileFileCredentialsProvider::builder().configure(&with).profile_name(profile).build();
    Ok(config.into_builder().credentials_provider(SharedCredentialsProvider::new(provider)).build())
}

impl Options {
    /// The configuration of AWS. It may ask for credentials, once.
    pub(crate) async fn config(&self) -> Result<&SdkConfig, Failure> {
        self.config.get_or_try_init(|| self.load()).await
    }

    async fn load(&self) -> Result<SdkConfig, Failure> {
        check_keys(self.profile.as_deref())?;
        if let Some(url) = &self.endpoint_url {
            check_endpoint("DynamoDB", url, "--endpoint-url")?;
        }
        let read = read(self.profile.clone(), self.region.clone());
        credentials::with_known(self.profile.as_deref(), read).await
    }

    /// A client of Step Functions. `None` where DynamoDB is another one than that of AWS, and Step Functions is not given.
    pub(crate) fn step_functions(&self, config: &SdkConfig) -> Option<aws_sdk_sfn::Client> {
        self.is_known(config, "SFN").then(|| {
            let config = aws_sdk_sfn::config::Builder::from(config).timeout_config(of_others());
            aws_sdk_sfn::Client::from_conf(config.build())
        })
    }

    /// A client of CloudFormation, as with [`Self::step_functions`].
    pub(crate) fn cloud_formation(&self, config: &SdkConfig) -> Option<aws_sdk_cloudformation::Client> {
        self.is_known(config, "CloudFormation").then(|| {
            let config = aws_sdk_cloudformation::config::Builder::from(config).timeout_config(of_others());
            aws_sdk_cloudformation::Client::from_conf(config.build())
        })
    }

    /// Whether it is known where a service is. Nobody who gives a DynamoDB of his own wants to send anything to AWS.
    fn is_known(&self, config: &SdkConfig, service: &str) -> bool {
        self.own_dynamodb(config).is_none() || configured(config, service).is_some()
    }

    pub(crate) fn dynamodb(&self, config: &SdkConfig) -> Client {
        let mut config = aws_sdk_dynamodb::config::Builder::from(config).interceptor(RequestIds);
        if let Some(url) = &self.endpoint_url {
            config = config.endpoint_url(url);
        }
        Client::from_conf(config.build())
    }

    /// A client of the streams, which another DynamoDB has too, unless they are somewhere else.
    pub(crate) fn streams(&self, config: &SdkConfig) -> aws_sdk_dynamodbstreams::Client {
        let elsewhere = configured(config, "DynamoDB Streams").filter(|_| self.endpoint_url.is_none());
        let url = elsewhere.or_else(|| self.own_dynamodb(config));
        let mut config = aws_sdk_dynamodbstreams::config::Builder::from(config).interceptor(RequestIds);
        config.set_endpoint_url(url);
        aws_sdk_dynamodbstreams::Client::from_conf(config.build())
    }

    /// The client. It sends nothing yet, but may ask for credentials.
    pub(crate) async fn open(&self) -> Result<LockClient, Failure> {
        self.open_with(RESPONSE).await
    }

    /// The client for a lock that is renewed. A third of the lease is for its renewals, and has to have room for several.
    pub(crate) async fn open_to_renew(&self, lease: Duration) -> Result<LockClient, Failure> {
        self.open_with((lease / 20).clamp(LockClientBuilder::DEFAULT_REQUEST_TIMEOUT, RESPONSE)).await
    }

    async fn open_with(&self, request_timeout: Duration) -> Result<LockClient, Failure> {
        let request_timeout = self.request_timeout_ms.map_or(request_timeout, Duration::from_millis);
        let dynamodb = self.dynamodb(self.config().await?);
        let mut builder = LockClient::builder(dynamodb, &self.table).key_attribute(&self.key_attribute).dialect(
            match self.lease_dialect {
                Leases::Java => Dialect::Java,
                Leases::Go => Dialect::Go,
            },
        );
        builder = builder.request_timeout(request_timeout);
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

    /// Checks that a lock has a sort key exactly where the table has one. The crate says so too, with names of its own.
    pub(crate) fn check_sort_key(&self, key: &LockKey) -> Result<(), Failure> {
        let named = screen::named_key(key);
        let wrong = match (&self.sort_key_attribute, key.sort_key()) {
            (Some(name), None) => format!(
                "{named} has no sort key, and the table has one, {name:?}, by --sort-key-attribute or LOCK_SORT_KEY_ATTRIBUTE: \
                 give --sort-key"
            ),
            (None, Some(_)) => format!(
                "{named} has a sort key, and the table has none: name that of the table with --sort-key-attribute or \
                 LOCK_SORT_KEY_ATTRIBUTE, or leave out --sort-key"
            ),
            _ => return Ok(()),
        };
        Err(Failure::Usage(wrong))
    }

    /// Where DynamoDB is, if it is another one than that of AWS.
    fn own_dynamodb(&self, config: &SdkConfig) -> Option<String> {
        self.endpoint_url.clone().or_else(|| configured(config, "DynamoDB"))
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn max_clock_skew(&self) -> Option<Duration> {
        self.max_clock_skew_ms.0
    }
}
