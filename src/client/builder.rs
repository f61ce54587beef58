//! The settings of the client: their defaults, and the errors for invalid values.

use super::LockClient;
use crate::engine::Engine;
use crate::engine::clock::{self, Clock};
use crate::engine::connections::Connections;
use crate::engine::dynamodb::DynamoDb;
use crate::engine::error::Error;
use crate::engine::prefix::KeyPrefix;
use crate::engine::wall_clock::WallClockCheck;
use aws_sdk_dynamodb::config::{Builder, SharedAsyncSleep};
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_async::rt::sleep::default_async_sleep;
use lambda_lock_protocol::{Dialect, Invalid, Settings, Ttl, schema};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest request timeout: a Lambda function runs no longer than this.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Settings of a [`LockClient`]. All clients of one table should use the same settings.
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LockClientBuilder {
    config: Builder,
    table: String,
    settings: Settings,
    drift: Option<f64>,
    ttl_attribute: Option<String>,
    ttl_retention: Option<Duration>,
    owner: Option<String>,
    one_home_region: bool,
    operations_at_info: bool,
    request_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl LockClient {
    /// Returns a builder for a client of this lock table. Sends no request.
    ///
    /// The lock sends its requests through an SDK client of its own with the configuration of `dynamodb`: the same
    /// credentials provider, Region, endpoint, timeouts and interceptors. Only the SDK's retries and its stalled stream
    /// protection are off there, because the lock retries requests by its own rules. Calls on `dynamodb` itself keep
    /// both.
    ///
    /// If the configuration names an `http_client`, the lock shares the connections of `dynamodb`. Otherwise it opens
    /// its own, which costs one more TLS handshake per execution environment if your code uses `dynamodb` too. If the
    /// configuration names an `identity_cache`, as one made by `aws_config` does, the lock shares the credentials that
    /// were fetched. Otherwise it calls the credentials provider once itself, which costs nothing for credentials in
    /// Lambda's environment variables.
    pub fn builder(dynamodb: Client, table: impl Into<String>) -> LockClientBuilder {
        LockClientBuilder::new(dynamodb.config().to_builder(), table.into())
    }
}

impl LockClientBuilder {
    /// The default of [`request_timeout`](LockClientBuilder::request_timeout): how long one request may take.
    pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

    pub(crate) fn new(config: Builder, table: String) -> Self {
        Self {
            config,
            table,
            settings: Settings::default(),
            drift: None,
            ttl_retention: None,
            ttl_attribute: None,
            owner: None,
            one_home_region: false,
            operations_at_info: false,
            request_timeout: Self::DEFAULT_REQUEST_TIMEOUT,
            clock: None,
        }
    }

    /// Sets the name of this client. People who look at the table see it, and the errors of other callers contain it.
    /// Default: a random name, drawn when it is first needed, so that processes that Lambda restores from one snapshot
    /// have different names. The owner of each lock is this name, `/`, and 8 random digits, so that it names one holder.
    /// An acquire may [name its owner](crate::Acquire::owner) itself.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Sets the name of the table's partition key attribute. Default: `key`, as in the Java client.
    pub fn key_attribute(mut self, name: impl Into<String>) -> Self {
        self.settings.schema.key_attribute = name.into();
        self
    }

    /// Sets the name of the table's sort key attribute. Default: none. With a sort key attribute, every lock key is a
    /// pair.
    pub fn sort_key_attribute(mut self, name: impl Into<String>) -> Self {
        self.settings.schema.sort_key_attribute = Some(name.into());
        self
    }

    /// Writes a TTL attribute with this name, so that DynamoDB deletes rows that nobody used for the
    /// [retention](LockClientBuilder::ttl_retention). Default: none, and rows stay. Give all clients of a table the
    /// same name. `expiresAt` is best: a client with another name, or none, removes it from each row that it holds or freezes,
    /// so that DynamoDB deletes no row that is held. Of any other name the row tells, and clients that do not have it are
    /// refused with [`InvalidRecord`](crate::ErrorKind::InvalidRecord).
    ///
    /// When a row is deleted, its fencing token is lost. The next token is still larger, as long as the clocks differ
    /// by less than the retention. Do not set this on a table that Java or Go clients write too, because they hold
    /// locks without refreshing the attribute.
    pub fn ttl_attribute(mut self, name: impl Into<String>) -> Self {
        self.ttl_attribute = Some(name.into());
        self
    }

    /// Sets how long an idle row is kept after its lease ended. Default: 7 days. It needs a
    /// [`ttl_attribute`](LockClientBuilder::ttl_attribute), and cannot be shorter than
    /// [`max_clock_skew`](LockClientBuilder::max_clock_skew).
    pub fn ttl_retention(mut self, retention: Duration) -> Self {
        self.ttl_retention = Some(retention);
        self
    }

    /// Sets how lease durations are written. Default: [`Dialect::Java`]. The client always reads both dialects. A key
    /// that is shared with Go clients needs [`Dialect::Go`], because they cannot read the Java dialect.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.schema.dialect = dialect;
        self
    }

    /// Sets by how much the wall clocks of the table's clients may differ. Default: 2 s. When a holder of this crate
    /// dies, another caller can take over this long after the end that the holder wrote. The takeover then needs one
    /// request and no observation. A caller that has observed the holder for a whole lease can take over sooner. Below 1 s,
    /// DynamoDB's clock no longer protects a holder whose wall clock is behind by more than this.
    pub fn max_clock_skew(mut self, max_clock_skew: Duration) -> Self {
        self.settings.clock_bounds = self.settings.clock_bounds.with_max_clock_skew(Some(max_clock_skew));
        self
    }

    /// Never declares a holder dead by the wall clock. A caller must then observe the holder for a whole lease. Use
    /// this on machines whose wall clocks are not synchronised.
    pub fn without_wall_clock_takeover(mut self) -> Self {
        self.settings.clock_bounds = self.settings.clock_bounds.with_max_clock_skew(None);
        self
    }

    /// Sets by how much the *rates* of two clocks may differ, as a fraction from 0 to 1. Default: 0.05.
    pub fn clock_drift(mut self, drift: f64) -> Self {
        self.drift = Some(drift);
        self
    }

    /// Says that each key is only ever locked from one Region. [`check_table`](crate::operator::Operator::check_table) then accepts a
    /// global table with eventual consistency. Default: not said, and such a table is an error there, because two
    /// Regions can acquire the same lock.
    ///
    /// Nothing else follows from it: no request checks from which Region a key is locked.
    pub fn one_home_region(mut self) -> Self {
        self.one_home_region = true;
        self
    }

    /// Reports each operation as an event at `INFO`. Default: at `DEBUG`. Use this with a subscriber that counts operations and
    /// otherwise does not look at `DEBUG`. Each place in the SDK that could log at `DEBUG` asks a subscriber that looks at
    /// `DEBUG` once, which takes time in a cold start.
    ///
    /// A subscriber that writes lines at `INFO` then writes one for each operation, unless it leaves out the target
    /// `lambda_lock::operation`.
    pub fn operations_at_info(mut self) -> Self {
        self.operations_at_info = true;
        self
    }

    /// Sets how long one request may take before its outcome is unknown, up to 15 minutes. Default: 1 s. A call without
    /// a budget spends at most three of these timeouts on faults. The request after one without a response goes over a connection
    /// that was opened since: something on the way may have dropped all idle ones while the function was frozen.
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// Sets a clock of your own, for tests. Default: the system's clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the client. Sends no request.
    ///
    /// # Errors
    /// Returns `InvalidRequest`
    ///
    /// * for a table name that DynamoDB does not accept;
    /// * for attribute names that are reserved or clash;
    /// * for a drift that is not a fraction;
    /// * for a timeout of zero or of more than 15 minutes;
    /// * for an owner that is empty or too long;
    /// * for a retention without a TTL attribute, or one that is shorter than the skew of the clocks;
    /// * when there is no way to sleep (a DynamoDB client without an async runtime).
    pub fn build(self) -> Result<LockClient, Error> {
        let mut settings = self.settings;
        check_table_name(&self.table)?;
        settings.schema.ttl = ttl(self.ttl_attribute, self.ttl_retention)?;
        settings.check()?;
        if let Some(drift) = self.drift {
            settings.clock_bounds = settings.clock_bounds.with_drift(drift)?;
        }
        let request_timeout = self.request_timeout;
        if request_timeout.is_zero() {
            return Err(Invalid::new("a request timeout of zero leaves no time to answer: give some hundred ms").into());
        }
        if request_timeout > MAX_REQUEST_TIMEOUT {
            return Err(Invalid::new(format!(
                "a request timeout of {request_timeout:?} is longer than any function runs: give at most \
                 {MAX_REQUEST_TIMEOUT:?}"
            ))
            .into());
        }
        let connections = Connections::default();
        let own_config = DynamoDb::config(self.config.clone().interceptor(connections.clone()));
        let clock = match self.clock {
            Some(clock) => clock,
            None => clock::system_with(way_to_sleep(&own_config)?),
        };
        if let Some(owner) = &self.owner {
            settings.check_owner_prefix(owner)?;
        }
        Ok(LockClient::new(Engine {
            transport: Arc::new(DynamoDb::new(own_config, self.table.clone(), settings.schema.clone())),
            config: Arc::new(self.config),
            connections,
            table: self.table,
            owner: self.owner.map_or_else(OnceLock::new, OnceLock::from),
            one_home_region: self.one_home_region,
            operations_at_info: self.operations_at_info,
            request_timeout,
            clock,
            wall_clock: Arc::new(WallClockCheck::new(settings.clock_bounds.max_clock_skew())),
            settings,
            key_prefix: KeyPrefix::default(),
            given_back: Arc::default(),
        }))
    }
}

fn way_to_sleep(config: &Config) -> Result<SharedAsyncSleep, Invalid> {
    config.sleep_impl().or_else(default_async_sleep).ok_or_else(|| {
        Invalid::new(
            "there is no way to sleep: enable the feature rt-tokio of aws-sdk-dynamodb, or give the DynamoDB client a \
             sleep_impl",
        )
    })
}

fn ttl(attribute: Option<String>, retention: Option<Duration>) -> Result<Option<Ttl>, Invalid> {
    match (attribute, retention) {
        (Some(attribute), retention) => {
            Ok(Some(Ttl { attribute, retention: retention.unwrap_or(schema::DEFAULT_TTL_RETENTION) }))
        }
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Invalid::new("a ttl_retention without a ttl_attribute has no effect: set both or none")),
    }
}

/// Accepts a table name or an ARN that DynamoDB accepts.
fn check_table_name(table: &str) -> Result<(), Invalid> {
    let name = match table.strip_prefix("arn:") {
        Some(arn) => arn.split_once(":table/").map(|(_, name)| name).unwrap_or_default(),
        None => table,
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !(3..=255).contains(&name.len()) || !name.chars().all(allowed) {
        return Err(Invalid::new(format!(
            "{table:?} is no name of a DynamoDB table: give 3 to 255 of a-z A-Z 0-9 _ - . or the table's ARN"
        )));
    }
    Ok(())
}
