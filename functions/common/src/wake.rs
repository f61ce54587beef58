//! Wakes executions of Step Functions that sleep until it is their turn to acquire a lock.
//!
//! Such an execution waits in a state with a task token. Its token is in a wake item of the lock table, because it may be
//! longer than the rest of a lock's row:
//!
//! | attribute | meaning |
//! |---|---|
//! | the table's key | `wake/`, the key of the lock, a slash and the ticket. Where the table has a sort key: `wake/` and the key; the sort key, a slash and the ticket |
//! | `taskToken` | the task token |
//! | `workflow` | the ARN of the execution, so that the index `byWorkflow` lists the item |
//! | the TTL attribute, if there is one | when DynamoDB may delete the item |
//!
//! Whoever deletes the item gets the token, so an execution is woken once. To be woken means: look now. It may come late,
//! twice or never; an execution that is not woken looks when its state times out.

use crate::client::http;
use crate::config::{Config, endpoint};
use crate::environment::{ConfigError, Environment};
use crate::failure::{Failure, with_causes};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use aws_sdk_sfn::config::retry::RetryConfig;
use aws_sdk_sfn::config::timeout::TimeoutConfig;
use aws_sdk_sfn::operation::send_task_success::SendTaskSuccessError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use lambda_lock::{LockClient, LockKey, MAX_LEASE, Sleeper};
use lambda_lock_protocol::WAKE;
use lambda_lock_protocol::schema::WORKFLOW;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of the attribute with the task token.
const TASK_TOKEN: &str = "taskToken";
/// The most bytes of a task token.
pub const MAX_TASK_TOKEN_BYTES: usize = 2048;
/// How long a wake item is kept where a TTL attribute is written. No state waits for longer than the longest lease.
const KEPT: Duration = MAX_LEASE;
/// How many in line are tried to be woken after a release. The executions of the first ones may have ended. Each of them costs a
/// request, and usually the time is over before that.
const MAX_TRIED: usize = 250;
/// How long waking may take after a release.
const LONGEST: Duration = Duration::from_secs(3);
/// The timeout of a request. An answer that takes longer is worth less than the time of the caller that waits.
const ATTEMPT_TIMEOUT: Duration = lambda_lock::LockClientBuilder::DEFAULT_REQUEST_TIMEOUT;

/// The wake items of a lock table, and the client that wakes. It makes its clients when it first needs them.
pub struct Waker {
    config: Config,
    endpoint: Option<String>,
    clients: OnceLock<Clients>,
}

struct Clients {
    dynamodb: aws_sdk_dynamodb::Client,
    step_functions: aws_sdk_sfn::Client,
}

/// What it means that a ticket has no wake item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutItem {
    /// Its caller looks by itself, or does not come any more. In that case the one behind it has to be told: it looks again when
    /// it may pass the caller that is gone.
    AwakeOrGone,
    /// Another waker was faster.
    Woken,
}

/// What became of a task token.
enum Told {
    /// The execution was woken.
    Woken,
    /// There is no wake item.
    NoItem,
    /// The execution waits for this token no more: it has ended, or its state has timed out.
    Closed,
}

impl Waker {
    /// Reads `AWS_ENDPOINT_URL_SFN`, or else `AWS_ENDPOINT_URL`. Sends no request.
    pub fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        let endpoint = endpoint(environment, "AWS_ENDPOINT_URL_SFN")?;
        Ok(Self { config: config.clone(), endpoint, clients: OnceLock::new() })
    }

    /// The key of the wake item of this ticket. `lock` is the key of the lock's row.
    ///
    /// # Errors
    /// Fails if the item's key would be longer than DynamoDB accepts.
    pub fn item_key(lock: &LockKey, ticket: u64) -> Result<LockKey, Failure> {
        let key = match lock.sort_key() {
            None => LockKey::new(format!("{WAKE}{}/{ticket}", lock.key()), None),
            Some(sort_key) => LockKey::new(format!("{WAKE}{}", lock.key()), Some(format!("{sort_key}/{ticket}"))),
        };
        if key.key().len() > LockKey::MAX_KEY_BYTES
            || key.sort_key().is_some_and(|sort_key| sort_key.len() > LockKey::MAX_SORT_KEY_BYTES)
        {
            return Err(Failure::invalid_request(
                "key is malformed: it is too long to wait in line, because a wake item needs up to 26 bytes more; shorten it",
            ));
        }
        Ok(key)
    }

    /// Writes a wake item. It replaces an earlier one of the same ticket.
    pub async fn sleep(&self, item: &LockKey, task_token: &str, workflow: Option<&str>) -> Result<(), Failure> {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let put = self.clients()?.dynamodb.put_item().table_name(self.config.table());
        let put = put.set_item(Some(self.attributes(item))).item(TASK_TOKEN, text(task_token));
        // An earlier version, or another client, may have a lock with such a key.
        let put = put.condition_expression("attribute_not_exists(recordVersionNumber)");
        let put = workflow.into_iter().fold(put, |put, workflow| put.item(WORKFLOW, text(workflow)));
        let ttl = self.config.schema.ttl.as_ref().map(|ttl| (&ttl.attribute, expires_at().to_string()));
        let put = ttl.into_iter().fold(put, |put, (name, at)| put.item(name, AttributeValue::N(at)));
        put.send().await.map(drop).map_err(|error| self.failure("written", &error))
    }

    /// Deletes the wake item of a caller that sleeps no more. Takes at most this long, and 1 s: the caller may hold the lock
    /// by now, and waits for the response. A failure is only logged: the item harms nobody.
    #[expect(clippy::disallowed_methods, reason = "a wake item that is left behind harms nobody")]
    pub async fn forget(&self, item: &LockKey, within: Option<Duration>) {
        let within = within.unwrap_or(ATTEMPT_TIMEOUT).min(ATTEMPT_TIMEOUT);
        match tokio::time::timeout(within, self.take(item)).await {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => tracing::warn!(key = %item, %failure, "a wake item was left behind"),
            Err(_) => tracing::warn!(key = %item, "a wake item was left behind: DynamoDB did not respond in time"),
        }
    }

    /// Wakes the execution of this wake item, if there is one. Returns whether it was woken.
    pub async fn wake(&self, item: &LockKey) -> Result<bool, Failure> {
        self.tell(item).await.map(|told| matches!(told, Told::Woken))
    }

    /// Wakes whoever is next in line for each of these locks, after their release. Takes at most this long, and 3 s: the caller
    /// has released its locks, and does not wait for others to be told.
    #[expect(clippy::disallowed_methods, reason = "the locks are released")]
    pub async fn wake_all(&self, sleepers: &[Sleeper], within: Option<Duration>) {
        if sleepers.is_empty() {
            return;
        }
        let all = async {
            for Sleeper { key, ticket, last, .. } in sleepers {
                if !self.wake_next(key, *ticket..=*last, WithoutItem::AwakeOrGone).await {
                    return;
                }
            }
        };
        if tokio::time::timeout(within.unwrap_or(LONGEST).min(LONGEST), all).await.is_err() {
            tracing::warn!("the time was over before all were woken; who sleeps looks when its state times out");
        }
    }

    /// Wakes whoever is next in line for those of these locks that are free, after a call that has failed: it may have given
    /// back what it held, and its error names nobody who sleeps. The keys are as this client takes them. Takes at most this long,
    /// and 3 s.
    #[expect(clippy::disallowed_methods, reason = "the call has failed")]
    pub async fn wake_freed(&self, locks: &LockClient, keys: &[LockKey], within: Option<Duration>) {
        let all = async {
            for key in keys {
                // Who sleeps looks by itself.
                let Ok(Some(row)) = locks.operator().peek(key).await else { continue };
                let Some(tickets) = row.to_wake() else { continue };
                let row =
                    LockKey::new(format!("{}{}", locks.key_prefix(), key.key()), key.sort_key().map(str::to_owned));
                if !self.wake_next(&row, tickets, WithoutItem::AwakeOrGone).await {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(within.unwrap_or(LONGEST).min(LONGEST), all).await;
    }

    /// Wakes the first one of these tickets that sleeps, after a release. `lock` is the key of the lock's row. An execution that
    /// has ended is passed over. A failure is only logged: the lock is released, and who sleeps will look by itself. Returns
    /// whether it is worth waking others.
    pub async fn wake_next(
        &self,
        lock: &LockKey,
        tickets: impl Iterator<Item = u64>,
        without_item: WithoutItem,
    ) -> bool {
        for ticket in tickets.take(MAX_TRIED) {
            let told = match Self::item_key(lock, ticket) {
                Ok(item) => self.tell(&item).await,
                // Nobody with such a key sleeps.
                Err(_) => return true,
            };
            match told {
                Ok(Told::Closed) => {}
                Ok(Told::NoItem) if without_item == WithoutItem::AwakeOrGone => {}
                Ok(Told::Woken | Told::NoItem) => return true,
                // Nobody will be woken before somebody has changed the deployment.
                Err(failure) if failure.error_type() == "LockTableError" => {
                    failure.of_lock(lock).log(None);
                    return false;
                }
                Err(failure) => {
                    tracing::warn!(key = %lock, ticket, %failure, "nobody was woken; who sleeps looks when its state times out");
                    return false;
                }
            }
        }
        true
    }

    async fn tell(&self, item: &LockKey) -> Result<Told, Failure> {
        let Some(task_token) = self.take(item).await? else { return Ok(Told::NoItem) };
        let told = self.clients()?.step_functions.send_task_success().task_token(task_token).output("{}").send().await;
        match told {
            Ok(_) => Ok(Told::Woken),
            Err(error) => match error.as_service_error() {
                Some(refused) if refused.is_task_timed_out() || refused.is_task_does_not_exist() => Ok(Told::Closed),
                Some(refused) if refused.is_invalid_token() => Ok(Told::Closed),
                _ => Err(not_woken(&error)),
            },
        }
    }

    /// Deletes a wake item, and returns its task token. Nobody else gets it.
    async fn take(&self, item: &LockKey) -> Result<Option<String>, Failure> {
        let delete = self.clients()?.dynamodb.delete_item().table_name(self.config.table());
        let delete = delete.set_key(Some(self.attributes(item))).return_values(ReturnValue::AllOld);
        let deleted = match delete.condition_expression("attribute_exists(taskToken)").send().await {
            Ok(deleted) => deleted,
            // There is no wake item.
            Err(error) if error.code() == Some("ConditionalCheckFailedException") => return Ok(None),
            Err(error) => return Err(self.failure("deleted", &error)),
        };
        let token = deleted.attributes.and_then(|mut item| item.remove(TASK_TOKEN));
        Ok(token.and_then(|token| token.as_s().ok().cloned()))
    }

    fn attributes(&self, key: &LockKey) -> HashMap<String, AttributeValue> {
        let (key_name, sort_key_name) = self.config.key_attributes();
        let text = |name: &str, text: &str| (name.to_owned(), AttributeValue::S(text.to_owned()));
        let sort_key = sort_key_name.zip(key.sort_key()).map(|(name, sort_key)| text(name, sort_key));
        [text(key_name, key.key())].into_iter().chain(sort_key).collect()
    }

    fn clients(&self) -> Result<&Clients, Failure> {
        if let Some(clients) = self.clients.get() {
            return Ok(clients);
        }
        let clients = self.make().map_err(|error| Failure::lock_table(error.to_string()))?;
        Ok(self.clients.get_or_init(|| clients))
    }

    fn make(&self) -> Result<Clients, ConfigError> {
        let http = http(&self.config)?;
        let mut builder = aws_sdk_sfn::Config::builder()
            .behavior_version(aws_sdk_sfn::config::BehaviorVersion::latest())
            .region(self.config.region.clone())
            .credentials_provider(self.config.credentials.provider(&http))
            .http_client(http)
            .use_fips(self.config.fips)
            .use_dual_stack(self.config.dual_stack)
            // With its retries: whoever releases a lock waits for it.
            .timeout_config(TimeoutConfig::builder().operation_timeout(ATTEMPT_TIMEOUT).build())
            .retry_config(RetryConfig::standard().with_initial_backoff(Duration::from_millis(50)));
        builder.set_endpoint_url(self.endpoint.clone());
        let step_functions = aws_sdk_sfn::Client::from_conf(builder.build());
        Ok(Clients { dynamodb: self.config.impatient_dynamodb()?, step_functions })
    }

    fn failure<E, R>(&self, what: &str, error: &SdkError<E, R>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: fmt::Debug + 'static,
    {
        let table = self.config.table();
        let said = error.message().unwrap_or("no reason was given");
        match error.code() {
            Some(
                code @ ("AccessDeniedException"
                | "UnrecognizedClientException"
                | "ExpiredTokenException"
                | "ResourceNotFoundException"
                | "ValidationException"
                | "ConditionalCheckFailedException"),
            ) => Failure::lock_table(format!(
                "a wake item of the lock table {table:?} could not be {what} ({code}: {said}): check the role's actions on keys \
                 that begin with {WAKE}"
            )),
            // Nobody has to repair a table that is throttled.
            Some(code) => Failure::unknown(format!(
                "a wake item of the lock table {table:?} was not {what} ({code}: {said}); retry the call"
            )),
            None => Failure::unknown(format!(
                "the lock table {table:?} did not respond in time when a wake item was {what}; retry the call (cause: {})",
                with_causes(error)
            )),
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").field("config", &self.config).finish_non_exhaustive()
    }
}

fn not_woken(error: &SdkError<SendTaskSuccessError, HttpResponse>) -> Failure {
    match error.code() {
        Some("AccessDeniedException") => Failure::lock_table(
            "an execution could not be woken: access is denied; check states:SendTaskSuccess of the function's role",
        ),
        _ => Failure::unknown(format!(
            "an execution may or may not have been woken ({}); it looks by itself when its state times out",
            with_causes(error)
        )),
    }
}

#[expect(clippy::disallowed_methods, reason = "DynamoDB deletes by the time of day")]
fn expires_at() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_add(KEPT).as_secs()
}
