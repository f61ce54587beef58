//! Reads the environment of a function once at its start.

use crate::credentials::CredentialsSource;
use crate::environment::{ConfigError, Environment, flag, optional, required};
use crate::metrics::Metrics;
use aws_sdk_dynamodb::config::{Credentials, Region};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_types::endpoint_config::AccountIdEndpointMode;
use lambda_lock::{Dialect, LockClient};
use lambda_lock_protocol::{Schema, Ttl, schema};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The configuration of a function.
///
/// | variable | default | meaning |
/// |---|---|---|
/// | `LOCK_TABLE` | required | the lock table's name or ARN |
/// | `LOCK_MAX_CLOCK_SKEW_MS` | 2000 | how far wall clocks may be apart, in ms; `off`: no takeover by wall clock |
/// | `LOCK_TTL_ATTRIBUTE` | none | the TTL attribute to write |
/// | `LOCK_KEY_ATTRIBUTE` | `key` | the table's partition key attribute |
/// | `LOCK_SORT_KEY_ATTRIBUTE` | none | the table's sort key attribute |
/// | `LOCK_LEASE_DIALECT` | `java` | the dialect in which leases are written: `java` or `go` |
/// | `METRICS_NAMESPACE` | none: no metrics | CloudWatch's namespace for the metrics of this function |
/// | `METRICS_BY_PREFIX` | `false` | `true`: metrics also for each first part of the keys |
/// | `AWS_REGION` | required | set by Lambda |
/// | `AWS_CONTAINER_CREDENTIALS_FULL_URI` | none | set by Lambda with SnapStart: where to ask for credentials |
/// | `AWS_CONTAINER_AUTHORIZATION_TOKEN`, or `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE` | none | set by Lambda with the URI |
/// | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` | required without the URI | set by Lambda |
/// | `AWS_SESSION_TOKEN` | none | set by Lambda |
/// | `AWS_ACCOUNT_ID_ENDPOINT_MODE` | `preferred` | whether the account is part of DynamoDB's host name |
/// | `AWS_USE_FIPS_ENDPOINT` | `false` | `true`: DynamoDB's FIPS endpoint of the Region |
/// | `AWS_USE_DUALSTACK_ENDPOINT` | `false` | `true`: the endpoints with IPv6 of the Region |
/// | `HTTPS_PROXY`, else `ALL_PROXY` | none | the proxy for requests to AWS, with small letters too |
/// | `NO_PROXY` | none | the hosts that are asked without it |
/// | `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS` | `false` | `true`: the next variable is not read |
/// | `AWS_CA_BUNDLE` | Amazon's | a PEM file of other root certificates to trust instead |
/// | `AWS_ENDPOINT_URL_DYNAMODB`, else `AWS_ENDPOINT_URL` | AWS's own | the endpoint of DynamoDB |
///
/// An empty variable counts as not set, so that a template can pass on an empty parameter.
#[derive(Clone)]
pub struct Config {
    pub(crate) table: String,
    pub(crate) max_clock_skew: Option<Duration>,
    pub(crate) schema: Schema,
    pub(crate) region: Region,
    pub(crate) credentials: CredentialsSource,
    pub(crate) account_id_endpoint_mode: AccountIdEndpointMode,
    pub(crate) endpoint: Option<String>,
    pub(crate) fips: bool,
    pub(crate) dual_stack: bool,
    /// For requests to AWS by HTTPS.
    pub(crate) proxy: Option<ProxyConfig>,
    /// Other root certificates than Amazon's, as PEM.
    pub(crate) roots: Option<String>,
    /// `None` where no metrics are written.
    pub(crate) metrics: Option<Arc<Metrics>>,
    /// What [`locks`](Config::locks) or [`prefixed_locks`](Config::prefixed_locks) has made.
    pub(crate) locks: OnceLock<LockClient>,
}

impl Config {
    /// Reads the process's environment.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::read(&crate::environment::process)
    }

    /// Reads an environment.
    pub fn read(environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            table: required(environment, "LOCK_TABLE", "the name of the lock table")?,
            max_clock_skew: max_clock_skew(environment)?,
            schema: schema(environment)?,
            region: region(environment)?,
            credentials: credentials(environment)?,
            account_id_endpoint_mode: account_id_endpoint_mode(environment)?,
            endpoint: endpoint(environment, "AWS_ENDPOINT_URL_DYNAMODB")?,
            fips: flag(environment, "AWS_USE_FIPS_ENDPOINT")?.unwrap_or(false),
            dual_stack: flag(environment, "AWS_USE_DUALSTACK_ENDPOINT")?.unwrap_or(false),
            proxy: proxy(environment)?,
            roots: roots(environment)?,
            metrics: Metrics::read(environment)?.map(Arc::new),
            locks: OnceLock::new(),
        })
    }

    /// The lock table's name or ARN.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The names of the lock table's partition key attribute, and of its sort key attribute if it has one.
    pub fn key_attributes(&self) -> (&str, Option<&str>) {
        (&self.schema.key_attribute, self.schema.sort_key_attribute.as_deref())
    }

    /// By how much two wall clocks may differ. `None`: no holder is declared dead by the wall clock.
    pub fn max_clock_skew(&self) -> Option<Duration> {
        self.max_clock_skew
    }

    /// Whether the lock table has a sort key.
    pub fn has_sort_key(&self) -> bool {
        self.schema.sort_key_attribute.is_some()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the credentials.
        f.debug_struct("Config").field("table", &self.table).field("schema", &self.schema).finish_non_exhaustive()
    }
}

fn max_clock_skew(environment: &Environment<'_>) -> Result<Option<Duration>, ConfigError> {
    match optional(environment, "LOCK_MAX_CLOCK_SKEW_MS")?.as_deref() {
        None => Ok(lambda_lock_protocol::ClockBounds::default().max_clock_skew()),
        Some("off") => Ok(None),
        Some(text) => {
            let millis: u32 = text.parse().map_err(|_| {
                ConfigError::new(format!(
                    "LOCK_MAX_CLOCK_SKEW_MS is {text:?}: give a whole number of milliseconds, such as 2000, or off"
                ))
            })?;
            Ok(Some(Duration::from_millis(millis.into())))
        }
    }
}

/// Reads the table's names and checks each one when it is added, so that the error names its variable.
fn schema(environment: &Environment<'_>) -> Result<Schema, ConfigError> {
    let mut schema = Schema { dialect: dialect(environment)?, ..Schema::default() };
    if let Some(name) = optional(environment, "LOCK_KEY_ATTRIBUTE")? {
        schema.key_attribute = name;
        check(&schema, "LOCK_KEY_ATTRIBUTE")?;
    }
    if let Some(name) = optional(environment, "LOCK_SORT_KEY_ATTRIBUTE")? {
        schema.sort_key_attribute = Some(name);
        check(&schema, "LOCK_SORT_KEY_ATTRIBUTE")?;
    }
    if let Some(attribute) = optional(environment, "LOCK_TTL_ATTRIBUTE")? {
        schema.ttl = Some(Ttl { attribute, retention: schema::DEFAULT_TTL_RETENTION });
        check(&schema, "LOCK_TTL_ATTRIBUTE")?;
    }
    Ok(schema)
}

fn check(schema: &Schema, name: &str) -> Result<(), ConfigError> {
    schema.check().map_err(|error| ConfigError::new(format!("{name} cannot be used: {error}")))
}

fn dialect(environment: &Environment<'_>) -> Result<Dialect, ConfigError> {
    match optional(environment, "LOCK_LEASE_DIALECT")?.as_deref() {
        None | Some("java") => Ok(Dialect::Java),
        Some("go") => Ok(Dialect::Go),
        Some(other) => Err(ConfigError::new(format!("LOCK_LEASE_DIALECT is {other:?}: give java or go"))),
    }
}

fn region(environment: &Environment<'_>) -> Result<Region, ConfigError> {
    let name = required(environment, "AWS_REGION", "the Region of the lock table, as Lambda does")?;
    // The Region becomes part of a host name.
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err(ConfigError::new(format!("AWS_REGION is {name:?}: give a Region such as eu-central-1")));
    }
    Ok(Region::new(name))
}

fn credentials(environment: &Environment<'_>) -> Result<CredentialsSource, ConfigError> {
    const ENDPOINT: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    if let Some(url) = optional(environment, ENDPOINT)? {
        if !is_http(&url) {
            return Err(ConfigError::new(format!(
                "{ENDPOINT} is {url:?}: give a URL that begins with http:// or https://, as Lambda does"
            )));
        }
        if !is_private(&url) {
            return Err(ConfigError::new(format!(
                "{ENDPOINT} is {url:?}, which would send credentials over the network as plain HTTP: give a URL of this machine, or \
                 one that begins with https://"
            )));
        }
        // The SDK reads these itself, and takes an empty one for a value.
        for name in ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] {
            if environment(name)?.is_some_and(|value| value.is_empty()) {
                return Err(ConfigError::new(format!("{name} is set and empty: remove it")));
            }
        }
        return Ok(CredentialsSource::Endpoint);
    }
    let what = "the credentials of the function's role, as Lambda does, or set AWS_CONTAINER_CREDENTIALS_FULL_URI to \
                the URL that returns them, as Lambda does with SnapStart";
    let id = required(environment, "AWS_ACCESS_KEY_ID", what)?;
    let secret = required(environment, "AWS_SECRET_ACCESS_KEY", what)?;
    let session = optional(environment, "AWS_SESSION_TOKEN")?;
    Ok(CredentialsSource::Variables(Credentials::new(id, secret, session, None, "Environment")))
}

fn account_id_endpoint_mode(environment: &Environment<'_>) -> Result<AccountIdEndpointMode, ConfigError> {
    match optional(environment, "AWS_ACCOUNT_ID_ENDPOINT_MODE")?.as_deref() {
        None | Some("preferred") => Ok(AccountIdEndpointMode::Preferred),
        Some("disabled") => Ok(AccountIdEndpointMode::Disabled),
        Some("required") => Ok(AccountIdEndpointMode::Required),
        Some(other) => Err(ConfigError::new(format!(
            "AWS_ACCOUNT_ID_ENDPOINT_MODE is {other:?}: give preferred, disabled or required"
        ))),
    }
}

/// The endpoint of a service, by the service's own variable or by the one for all of them.
pub(crate) fn endpoint(environment: &Environment<'_>, of_service: &str) -> Result<Option<String>, ConfigError> {
    if flag(environment, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")?.unwrap_or(false) {
        return Ok(None);
    }
    for name in [of_service, "AWS_ENDPOINT_URL"] {
        let Some(url) = optional(environment, name)? else { continue };
        if !is_http(&url) {
            return Err(ConfigError::new(format!(
                "{name} is {url:?}: give a URL that begins with http:// or https://, such as http://localhost:8000"
            )));
        }
        return Ok(Some(url));
    }
    Ok(None)
}

/// The proxy for requests by HTTPS. Names in small letters come first, as in other programs.
fn proxy(environment: &Environment<'_>) -> Result<Option<ProxyConfig>, ConfigError> {
    for name in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        let Some(url) = optional(environment, name)? else { continue };
        // The URL may have a password.
        let wrong =
            || ConfigError::new(format!("{name} is no URL of a proxy: give one such as http://proxy.example.com:3128"));
        if !is_http(&url) {
            return Err(wrong());
        }
        let excluded = match optional(environment, "no_proxy")? {
            None => optional(environment, "NO_PROXY")?,
            excluded => excluded,
        };
        let proxy = ProxyConfig::https(url).map_err(|_| wrong())?;
        return Ok(Some(proxy.no_proxy(excluded.unwrap_or_default())));
    }
    Ok(None)
}

/// Whether what a URL returns stays on this machine, or goes over TLS.
fn is_private(url: &str) -> bool {
    let uri = url.parse::<http::Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    uri.scheme_str() == Some("https")
        || host == "localhost"
        // Where Amazon's containers ask.
        || ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"].contains(&host)
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn roots(environment: &Environment<'_>) -> Result<Option<String>, ConfigError> {
    const BUNDLE: &str = "AWS_CA_BUNDLE";
    let Some(path) = optional(environment, BUNDLE)? else { return Ok(None) };
    let refused = |why: &dyn fmt::Display| {
        ConfigError::new(format!("{BUNDLE} is {path:?}, which {why}: give the path of a PEM file of root certificates"))
    };
    let pem = std::fs::read_to_string(&path).map_err(|error| refused(&format!("cannot be read ({error})")))?;
    // The client panics at its first connection when it cannot use a certificate.
    let mut certificates = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| refused(&format!("is no PEM file ({error})")))?;
        webpki::anchor_from_trusted_cert(&certificate)
            .map_err(|error| refused(&format!("has a certificate that cannot be trusted ({error})")))?;
        certificates += 1;
    }
    if certificates == 0 { Err(refused(&"has no certificate")) } else { Ok(Some(pem)) }
}

fn is_http(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::variables;

    const LAMBDA: [(&str, &str); 5] = [
        ("LOCK_TABLE", "locks"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "an-id"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret"),
        ("AWS_SESSION_TOKEN", "a-session"),
    ];

    fn with(changes: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let config = Config::read(&variables(&[changes, &LAMBDA].concat()))?;
        config.locks().map(|_| config)
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let config = with(&[]).unwrap();
        assert_eq!(config.table, "locks");
        assert_eq!(config.max_clock_skew, Some(Duration::from_millis(2000)));
        assert_eq!(config.schema, Schema::default());
        assert_eq!(config.endpoint, None);
        assert!(!config.has_sort_key());
        assert_eq!(config.account_id_endpoint_mode, AccountIdEndpointMode::Preferred);
        let CredentialsSource::Variables(credentials) = &config.credentials else { panic!("not the variables") };
        assert_eq!(credentials.session_token(), Some("a-session"));
    }

    #[test]
    fn every_variable_is_read() {
        let config = with(&[
            ("LOCK_MAX_CLOCK_SKEW_MS", "1500"),
            ("LOCK_TTL_ATTRIBUTE", "expiresAt"),
            ("LOCK_KEY_ATTRIBUTE", "pk"),
            ("LOCK_SORT_KEY_ATTRIBUTE", "sk"),
            ("LOCK_LEASE_DIALECT", "go"),
            ("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled"),
            ("AWS_ENDPOINT_URL", "http://localhost:8000"),
        ])
        .unwrap();
        assert_eq!(config.account_id_endpoint_mode, AccountIdEndpointMode::Disabled);
        assert_eq!(config.max_clock_skew, Some(Duration::from_millis(1500)));
        assert_eq!(config.schema.ttl.as_ref().unwrap().attribute, "expiresAt");
        assert_eq!((config.schema.key_attribute.as_str(), config.schema.dialect), ("pk", Dialect::Go));
        assert_eq!(config.schema.sort_key_attribute.as_deref(), Some("sk"));
        assert!(config.has_sort_key());
        assert_eq!(config.endpoint.as_deref(), Some("http://localhost:8000"));
        assert_eq!(with(&[("LOCK_MAX_CLOCK_SKEW_MS", "off")]).unwrap().max_clock_skew, None);
    }

    #[test]
    fn the_endpoint_of_dynamodb_overrides_the_general_endpoint() {
        let both = [("AWS_ENDPOINT_URL", "https://all"), ("AWS_ENDPOINT_URL_DYNAMODB", "https://dynamodb")];
        assert_eq!(with(&both).unwrap().endpoint.as_deref(), Some("https://dynamodb"));
    }

    #[test]
    fn endpoints_are_not_read_where_the_environment_says_so() {
        let ignored = [("AWS_ENDPOINT_URL", "https://all"), ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")];
        assert_eq!(with(&ignored).unwrap().endpoint, None);
    }

    #[test]
    fn credentials_may_come_from_this_machine_and_by_tls() {
        for url in ["http://localhost:9001/", "http://[::1]:9001/", "http://169.254.170.2/v1", "https://example.com/"] {
            with(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]).unwrap();
        }
    }

    #[test]
    fn a_variable_that_is_set_and_empty_counts_as_not_set() {
        for name in [
            "LOCK_MAX_CLOCK_SKEW_MS",
            "LOCK_TTL_ATTRIBUTE",
            "LOCK_KEY_ATTRIBUTE",
            "LOCK_SORT_KEY_ATTRIBUTE",
            "LOCK_LEASE_DIALECT",
            "METRICS_NAMESPACE",
            "METRICS_BY_PREFIX",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_SESSION_TOKEN",
            "AWS_ACCOUNT_ID_ENDPOINT_MODE",
            "AWS_USE_FIPS_ENDPOINT",
            "AWS_USE_DUALSTACK_ENDPOINT",
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
            "HTTPS_PROXY",
            "NO_PROXY",
            "AWS_CA_BUNDLE",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_DYNAMODB",
        ] {
            assert!(with(&[(name, "")]).is_ok(), "{name}");
        }
        // The SDK reads it itself.
        let token_file = [
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1/"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""),
        ];
        let error = with(&token_file).unwrap_err().to_string();
        assert_eq!(error, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE is set and empty: remove it");
    }

    #[test]
    fn the_endpoint_of_credentials_goes_before_the_credentials_and_replaces_them() {
        let endpoint = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9001/credentials");
        let without = [endpoint, ("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")];

        for environment in [&[endpoint][..], &without] {
            assert!(matches!(with(environment).unwrap().credentials, CredentialsSource::Endpoint));
        }
    }

    #[test]
    fn without_credentials_the_error_says_both_ways_to_give_them() {
        let error = with(&[("AWS_ACCESS_KEY_ID", "")]).unwrap_err().to_string();
        assert!(error.contains("AWS_ACCESS_KEY_ID") && error.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "{error}");
    }

    #[test]
    fn a_missing_variable_stops_the_start_by_its_name() {
        for name in ["LOCK_TABLE", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            let error = with(&[(name, "")]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is not set: ")), "{error}");
        }
    }

    #[test]
    fn a_malformed_variable_stops_the_start_by_its_name() {
        for (name, value) in [
            ("LOCK_TABLE", "no table!"),
            ("LOCK_TABLE", "ab"),
            ("LOCK_MAX_CLOCK_SKEW_MS", "2 s"),
            ("LOCK_MAX_CLOCK_SKEW_MS", "-1"),
            ("LOCK_MAX_CLOCK_SKEW_MS", "1.5"),
            ("LOCK_TTL_ATTRIBUTE", "ownerName"),
            ("LOCK_TTL_ATTRIBUTE", "key"),
            ("LOCK_KEY_ATTRIBUTE", "data"),
            ("LOCK_SORT_KEY_ATTRIBUTE", "key"),
            ("LOCK_LEASE_DIALECT", "Java"),
            ("AWS_REGION", "Frankfurt am Main"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "169.254.100.1/credentials"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "file:///credentials"),
            ("AWS_ACCOUNT_ID_ENDPOINT_MODE", "sometimes"),
            ("AWS_USE_FIPS_ENDPOINT", "yes"),
            ("AWS_CA_BUNDLE", "/nowhere.pem"),
            ("AWS_CA_BUNDLE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
            ("METRICS_NAMESPACE", "AWS/Lambda"),
            ("AWS_USE_DUALSTACK_ENDPOINT", "yes"),
            ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "yes"),
            ("HTTPS_PROXY", "proxy.example.com:3128"),
            ("all_proxy", "socks5://proxy.example.com"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.7/credentials"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://credentials.example.com/"),
            ("AWS_ENDPOINT_URL", "localhost:8000"),
            ("AWS_ENDPOINT_URL_DYNAMODB", "ftp://localhost"),
            ("AWS_ENDPOINT_URL_DYNAMODB", "http://"),
        ] {
            let error = with(&[(name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} ")), "{name}={value}: {error}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let shown = format!("{:?}", with(&[]).unwrap());
        assert!(!shown.contains("a-secret") && !shown.contains("a-session"), "{shown}");
    }
}
