//! Requests as calls of `aws-sdk-dynamodb`, and what its answers mean.
//!
//! Every call is one HTTP request: the SDK's own retries are switched off, because the decisions
//! repeat requests themselves and must know of each attempt whether it may have been applied. The
//! calls share the connections of the caller's client.

use crate::engine::error::BoxError;
use crate::engine::extra::Extra;
use crate::engine::seen::{Watch, watched};
use crate::engine::transport::{Response, Transport};
use crate::protocol::{Action, Answer, Expression, Item, LockKey, Rejection, Request, Returns, Schema, Value};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{Intercept, RuntimeComponents, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextRef,
    BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::config_bag::{ConfigBag, FrozenLayer, Layer};
use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::OnceLock;

/// What the caller gave: a client whose connections are to be shared, or the configuration for one, which is made
/// when it is needed.
#[derive(Debug)]
pub(crate) enum Sdk {
    Client(Client),
    Config { config: Config, client: OnceLock<Client> },
}

impl From<Config> for Sdk {
    fn from(config: Config) -> Self {
        Sdk::Config { config, client: OnceLock::new() }
    }
}

impl Sdk {
    pub(crate) fn config(&self) -> &Config {
        match self {
            Sdk::Client(client) => client.config(),
            Sdk::Config { config, .. } => config,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        match self {
            Sdk::Client(client) => client,
            Sdk::Config { config, client } => client.get_or_init(|| Client::from_conf(config.clone())),
        }
    }
}

/// A table behind a client of the SDK.
#[derive(Debug)]
pub(crate) struct DynamoDb {
    pub(crate) client: Client,
    pub(crate) table: String,
    pub(crate) schema: Schema,
    /// What each call says for itself, where `client` is the caller's own.
    pub(crate) each: Option<OneAttempt>,
}

pub(crate) type Attributes = HashMap<String, AttributeValue>;
pub(crate) type Outcome = (Answer, Option<BoxError>);

impl DynamoDb {
    pub(crate) fn new(sdk: &Sdk, table: String, schema: Schema) -> Self {
        // No retries; and no watch for stalled answers, which costs about 3 % of a request's instructions and has
        // nothing to watch in a few hundred bytes that are waited for with a timeout anyway.
        let (retries, watch) = (RetryConfig::disabled(), StalledStreamProtectionConfig::disabled());
        // A client made from a client's configuration shares its connections only if they belong to an HTTP client
        // that stands in it. Otherwise calls go through the caller's own client, and each says for itself what is
        // special about it: the SDK then puts its configuration together anew, which costs about 5 % more CPU.
        let client = match sdk {
            Sdk::Client(client) if client.config().http_client().is_none() => client.clone(),
            sdk => {
                let config = sdk.config().to_builder().retry_config(retries).stalled_stream_protection(watch);
                let client = Client::from_conf(config.interceptor(Watch).build());
                return Self { client, table, schema, each: None };
            }
        };
        let mut layer = Layer::new("LockOneAttempt");
        layer.store_put(retries);
        layer.store_put(watch);
        Self { client, table, schema, each: Some(OneAttempt(layer.freeze())) }
    }

    async fn update(&self, request: &Request) -> Outcome {
        let Expression { update, condition, names, values, returns } = Expression::of(request, &self.schema);
        let call = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(key_of(&self.schema, &request.key)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(names_map(names))
            .set_expression_attribute_values(Some(values_map(values)))
            .return_values(match returns {
                Returns::Nothing => ReturnValue::None,
                Returns::AllNew => ReturnValue::AllNew,
                Returns::UpdatedOld => ReturnValue::UpdatedOld,
            })
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match send!(self, call) {
            Ok(output) => match (returns, output.attributes) {
                (Returns::Nothing, _) => (Answer::Applied(Item::default()), None),
                (_, Some(attributes)) => (Answer::Applied(item(attributes)), None),
                (_, None) => (Answer::Unknown, Some("the answer lacks the attributes that were asked for".into())),
            },
            Err(error) => failed(error, |error| match error {
                UpdateItemError::ConditionalCheckFailedException(refused) => Some(refused.item.clone()),
                _ => None,
            }),
        }
    }

    /// With the name of the table, where that is what is wrong. (Of a transaction it may be another one.)
    fn named(&self, (answer, cause): Outcome) -> Outcome {
        (naming(&self.table, answer), cause)
    }

    async fn get(&self, request: &Request) -> Outcome {
        let call = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key_of(&self.schema, &request.key)))
            .consistent_read(true);
        match send!(self, call) {
            Ok(output) => (Answer::Found(output.item.map(item)), None),
            Err(error) => failed(error, |_| None),
        }
    }
}

impl Transport for DynamoDb {
    fn send<'a>(
        &'a self,
        request: &'a Request,
        extra: &'a dyn Extra,
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>> {
        Box::pin(async move {
            let call = pin!(async {
                match (&request.action, &request.transaction) {
                    (_, Some(_)) => extra.send(self, request).await,
                    (Action::Peek, None) => self.named(self.get(request).await),
                    (Action::Delete { .. }, None) => self.named(extra.send(self, request).await),
                    (_, None) => self.named(self.update(request).await),
                }
            });
            let ((answer, cause), seen) = watched(call).await;
            let answer = if answer == Answer::Unknown && !seen.sent { never_sent(cause.as_ref()) } else { answer };
            Response { answer, cause, server_time: seen.date }
        })
    }
}

/// The lock's part of a transaction.
pub(crate) fn transaction_item(table: &str, schema: &Schema, request: &Request) -> Result<TransactWriteItem, BoxError> {
    let Expression { update, condition, names, values, .. } = Expression::of(request, schema);
    let key = Some(key_of(schema, &request.key));
    let (names, values) = (names_map(names), Some(values_map(values)));
    let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
    let item = TransactWriteItem::builder();
    Ok(if update.is_empty() {
        let check = ConditionCheck::builder().table_name(table).set_key(key).condition_expression(condition);
        let check = check.set_expression_attribute_names(names).set_expression_attribute_values(values);
        item.condition_check(check.return_values_on_condition_check_failure(all_old).build()?).build()
    } else {
        let write = Update::builder().table_name(table).set_key(key).condition_expression(condition);
        let write = write.set_expression_attribute_names(names).set_expression_attribute_values(values);
        let write = write.update_expression(update).return_values_on_condition_check_failure(all_old);
        item.update(write.build()?).build()
    })
}

pub(crate) fn key_of(schema: &Schema, key: &LockKey) -> Attributes {
    let mut attributes = HashMap::with_capacity(2);
    if let (Some(name), Some(value)) = (&schema.sort_key_attribute, key.sort_key()) {
        attributes.insert(name.clone(), AttributeValue::S(value.to_owned()));
    }
    attributes.insert(schema.key_attribute.clone(), AttributeValue::S(key.key().to_owned()));
    attributes
}

/// What a failure before anything was sent means: the SDK has no credentials, no Region or no endpoint.
fn never_sent(cause: Option<&BoxError>) -> Answer {
    let mut reason = cause.map(|cause| &**cause as &dyn std::error::Error);
    while let Some(deeper) = reason.and_then(std::error::Error::source) {
        reason = Some(deeper);
    }
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Answer::Rejected(Rejection::Denied(format!("no request was sent{reason}")))
}

/// Makes one attempt of a call and watches it, where the client's configuration does not say so.
#[derive(Clone, Debug)]
pub(crate) struct OneAttempt(FrozenLayer);

#[dyn_dispatch_hint]
impl Intercept for OneAttempt {
    fn name(&self) -> &'static str {
        "LockOneAttempt"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        config.push_shared_layer(self.0.clone());
        Ok(())
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        Watch.read_before_transmit(context, components, config)
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        Watch.read_before_deserialization(context, components, config)
    }
}

/// Sends a call with what each has to say for itself.
macro_rules! send {
    ($dynamodb:expr, $call:expr) => {
        match $dynamodb.each.clone() {
            None => $call.send().await,
            Some(one) => $call.customize().interceptor(one).send().await,
        }
    };
}
pub(crate) use send;

/// What a failed write or read means.
pub(crate) fn failed<E>(
    error: SdkError<E, HttpResponse>,
    refused: impl FnOnce(&E) -> Option<Option<Attributes>>,
) -> Outcome
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    if let Some(row) = error.as_service_error().and_then(refused) {
        return (Answer::Refused(row.map(item)), None);
    }
    (answer_to(&error), Some(Box::new(error)))
}

/// What a failure means: a refusal is a 4xx with a code that we know; **everything else is
/// unknown**, also a 200 that cannot be read.
pub(crate) fn answer_to<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Answer {
    match error {
        SdkError::ServiceError(context) if context.raw().status().is_client_error() => {
            Answer::of_error(context.err().code(), context.err().message())
        }
        // It never left this process: no credentials, no Region, no endpoint.
        SdkError::ConstructionFailure(_) => {
            Answer::Rejected(Rejection::Denied("the request could not be built or signed".to_owned()))
        }
        _ => Answer::Unknown,
    }
}

/// DynamoDB does not say which table it has not found, and a deployment may have several.
pub(crate) fn naming(table: &str, answer: Answer) -> Answer {
    match answer {
        Answer::Rejected(Rejection::Table(message)) => {
            Answer::Rejected(Rejection::Table(format!("table {table:?}: {message}")))
        }
        other => other,
    }
}

pub(crate) fn names_map(names: Vec<(&'static str, String)>) -> Option<HashMap<String, String>> {
    let names: HashMap<_, _> = names.into_iter().map(|(placeholder, name)| (placeholder.to_owned(), name)).collect();
    (!names.is_empty()).then_some(names)
}

pub(crate) fn values_map(values: Vec<(&'static str, Value)>) -> Attributes {
    values.into_iter().map(|(placeholder, value)| (placeholder.to_owned(), attribute(value))).collect()
}

fn attribute(value: Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text),
        Value::N(number) => AttributeValue::N(number),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes)),
        // Only ever read, never written.
        Value::Other(_) => AttributeValue::Null(true),
    }
}

pub(crate) fn item(attributes: Attributes) -> Item {
    attributes.into_iter().map(|(name, value)| (name, self::value(value))).collect()
}

fn value(attribute: AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(number) => Value::N(number),
        AttributeValue::B(bytes) => Value::B(bytes.into_inner()),
        AttributeValue::Bool(_) => Value::Other("BOOL"),
        AttributeValue::Null(_) => Value::Other("NULL"),
        AttributeValue::L(_) => Value::Other("L"),
        AttributeValue::M(_) => Value::Other("M"),
        AttributeValue::Ss(_) => Value::Other("SS"),
        AttributeValue::Ns(_) => Value::Other("NS"),
        AttributeValue::Bs(_) => Value::Other("BS"),
        _ => Value::Other("of an unknown type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::extra::Nothing;
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    use aws_smithy_runtime_api::client::http::{
        HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
    };
    use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
    use aws_smithy_types::body::SdkBody;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Fails each request, and counts them.
    #[derive(Clone, Debug, Default)]
    struct Failing(Arc<AtomicUsize>);

    impl HttpConnector for Failing {
        fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
            self.0.fetch_add(1, Ordering::Relaxed);
            let mut failure = HttpResponse::new(500.try_into().unwrap(), SdkBody::empty());
            failure.headers_mut().insert("x-amzn-requestid", "R1");
            failure.headers_mut().insert("date", "Sat, 21 Nov 2026 00:00:00 GMT");
            HttpConnectorFuture::ready(Ok(failure))
        }
    }

    #[tokio::test]
    async fn a_request_is_sent_once_whatever_the_callers_client_retries() {
        let sent = Failing::default();
        let connector = sent.clone();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "test"))
            .retry_config(RetryConfig::standard().with_max_attempts(5).with_initial_backoff(Duration::from_millis(1)))
            .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(connector.clone())))
            .build();
        let shared = Client::from_conf(config);
        // As the SDK makes it by default: with connections that belong to the client.
        let mut without = shared.config().to_builder();
        without.set_http_client(None);
        let without = Sdk::Client(Client::from_conf(without.build()));
        let unshared = DynamoDb::new(&without, "locks".to_owned(), Schema::default());
        assert!(unshared.each.is_some(), "no connections stand in the configuration: the caller's are used");
        let by_itself = DynamoDb { client: shared.clone(), ..unshared };
        let ours = DynamoDb::new(&Sdk::Client(shared.clone()), "locks".to_owned(), Schema::default());
        assert!(ours.each.is_none(), "the connections stand in the configuration and are shared");
        let configured = Sdk::from(shared.config().clone());
        let configured = DynamoDb::new(&configured, "locks".to_owned(), Schema::default());
        for (so_far, table) in [ours, by_itself, configured].iter().enumerate() {
            let response = table.send(&Request::alone("k".into(), Action::Peek), &Nothing).await;
            assert_eq!(response.answer, Answer::Unknown);
            assert!(response.server_time.is_some(), "the Date header is caught");
            assert_eq!(sent.0.load(Ordering::Relaxed), so_far + 1);
        }
        // The caller's own calls are as they were.
        shared.list_tables().send().await.unwrap_err();
        assert_eq!(sent.0.load(Ordering::Relaxed), 3 + 5);
    }
}
