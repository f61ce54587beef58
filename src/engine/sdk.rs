//! A table behind a client of the SDK: how one request is sent as one attempt, and how its parts and its answers are
//! translated.

use super::error::BoxError;
use super::seen::Watch;
use crate::protocol::{Answer, Expression, Item, LockKey, Rejection, Request, Schema, Value};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{Intercept, RuntimeComponents, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
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
        return (Answer::ConditionFailed(row.map(item)), None);
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
