//! One DynamoDB engine: its responses to the crate's requests, and its rows afterwards.

use crate::evaluation::{Attributes, Outcome, sorted};
use crate::requests::Operation;
use crate::sets::Set;
use crate::writes::{ID, TABLE};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_types::base64;
use lambda_lock::LockClient;
use lambda_lock::simulation::{Network, Real};
use lambda_lock_local::config;
use lambda_lock_protocol::{Item, LockKey, Request, Schema, Value};
use lambda_lock_simulation::Answer;
use serde_json::Value as Json;
use std::sync::{Arc, Mutex};

const LOCKS: &str = "locks";

/// Creates the lock table and the caller's own table.
pub(crate) async fn create_tables(dynamodb: &Client) {
    LockClient::builder(dynamodb.clone(), LOCKS).build().unwrap().operator().create_table().await.unwrap();
    let id = AttributeDefinition::builder().attribute_name(ID).attribute_type(ScalarAttributeType::S);
    let hash = KeySchemaElement::builder().attribute_name(ID).key_type(KeyType::Hash);
    let create = dynamodb.create_table().table_name(TABLE).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(hash.build().unwrap());
    create.send().await.unwrap();
}

/// A client of one engine. It sends one request at a time.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    dynamodb: Client,
    listening: Listening,
}

impl Engine {
    pub(crate) fn new(name: &'static str, endpoint: &str) -> Self {
        let listening = Listening::default();
        let dynamodb = Client::from_conf(config(endpoint).interceptor(listening.clone()).build());
        Self { name, dynamodb, listening }
    }

    /// Sends it as the crate sends its requests.
    async fn send(&self, request: Request, operation: &Operation, schema: &Schema) -> Answer {
        let writes: Vec<_> = operation.writes.iter().map(crate::writes::Write::item).collect();
        let real = Real::new(self.dynamodb.clone(), LOCKS, schema.clone());
        if request.transaction.is_none() {
            return Answer::of_write(real.write(request).await.reply);
        }
        Answer::of_transaction(real.transact(vec![request], &writes).await.reply)
    }

    pub(crate) async fn apply(&self, operation: &Operation, schema: &Schema) -> Outcome {
        let answer = self.send(operation.request.clone(), operation, schema).await;
        let reasons = std::mem::take(&mut *self.listening.0.lock().unwrap());
        Outcome { reasons, ..Outcome::of(answer) }
    }

    /// One request alone.
    pub(crate) async fn alone(&self, request: &Request, schema: &Schema) -> Outcome {
        let real = Real::new(self.dynamodb.clone(), LOCKS, schema.clone());
        Outcome::of(Answer::of_write(real.write(request.clone()).await.reply))
    }

    /// A transaction over several locks, as the crate sends it.
    pub(crate) async fn together(&self, set: &Set, schema: &Schema) -> Outcome {
        let writes: Vec<_> = set.writes.iter().map(crate::writes::Write::item).collect();
        let real = Real::new(self.dynamodb.clone(), LOCKS, schema.clone());
        let reply = real.transact(set.requests.clone(), &writes).await.reply;
        let reasons = std::mem::take(&mut *self.listening.0.lock().unwrap());
        Outcome { reasons, ..Outcome::of_set(&reply) }
    }

    /// Several rows at once, as the crate reads them.
    pub(crate) async fn read_all(&self, keys: &[LockKey], schema: &Schema) -> Outcome {
        let real = Real::new(self.dynamodb.clone(), LOCKS, schema.clone());
        Outcome::of_rows(real.read_all(keys.to_vec()).await.reply)
    }

    pub(crate) async fn row(&self, key: &LockKey) -> Option<Attributes> {
        let real = Real::new(self.dynamodb.clone(), LOCKS, Schema::default());
        match real.read(key.clone()).await.reply {
            Ok(row) => row.map(sorted),
            Err(fault) => panic!("{}: {fault:?}", self.name),
        }
    }

    /// One of the caller's own items.
    pub(crate) async fn work(&self, id: &str) -> Option<Attributes> {
        let get = self.dynamodb.get_item().table_name(TABLE).key(ID, AttributeValue::S(id.to_owned()));
        let found = get.consistent_read(true).send().await.unwrap().item?;
        let value = |value: AttributeValue| match value {
            AttributeValue::S(text) => Value::S(text),
            AttributeValue::N(number) => Value::N(number),
            other => panic!("unexpected value {other:?} in the caller's row"),
        };
        Some(sorted(found.into_iter().map(|(name, found)| (name, value(found))).collect()))
    }
}

/// Records why a transaction was cancelled. The crate tells its callers only a part of it.
#[derive(Clone, Debug, Default)]
struct Listening(Arc<Mutex<Vec<Reason>>>);

/// The code, and the row if it was requested.
type Reason = (String, Option<Attributes>);

impl Intercept for Listening {
    fn name(&self) -> &'static str {
        "Listening"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body: Json = serde_json::from_slice(context.response().body().bytes().unwrap_or_default())?;
        let reasons = body["CancellationReasons"].as_array().into_iter().flatten();
        *self.0.lock().unwrap() = reasons.map(reason).collect();
        Ok(())
    }
}

fn reason(reason: &Json) -> (String, Option<Attributes>) {
    let item = reason["Item"].as_object().map(|item| {
        let value = |value: &Json| {
            let text = |name: &str| value[name].as_str().map(str::to_owned);
            let bytes = || base64::decode(text("B")?).ok().map(Value::B);
            let text_of = |one: &Json| one.as_str().map(str::to_owned);
            let members = || value["NS"].as_array()?.iter().map(text_of).collect::<Option<Vec<_>>>();
            let set = || members().map(Value::Ns);
            let others = || bytes().or_else(set).unwrap_or(Value::Other("?"));
            text("S").map(Value::S).or_else(|| text("N").map(Value::N)).unwrap_or_else(others)
        };
        sorted(item.iter().map(|(name, given)| (name.clone(), value(given))).collect::<Item>())
    });
    (reason["Code"].as_str().unwrap_or_default().to_owned(), item)
}
