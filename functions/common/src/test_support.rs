//! An embedded DynamoDB for the tests of handlers, used through the functions' own client.
//!
//! The server listens on a loopback port and lives as long as the test's runtime. The environment,
//! the client and HTTP are the same as in Lambda.

use crate::config::Config;
use crate::environment::ConfigError;
use crate::event::Event;
use crate::failure::Failure;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::StatusCode;
use dynoxide::Database;
use lambda_lock::LockClient;
use lambda_runtime::{Context, LambdaEvent};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An environment with these variables. Of two with one name the first counts.
pub fn variables(all: &[(&str, &str)]) -> impl Fn(&str) -> Result<Option<String>, ConfigError> {
    move |name| Ok(all.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

/// The lock table of [`DynamoDb::start`].
pub const TABLE: &str = "locks";

/// An embedded DynamoDB on a loopback port.
#[derive(Clone, Debug)]
pub struct DynamoDb {
    url: String,
}

impl DynamoDb {
    /// Starts a server without tables.
    pub async fn empty() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap_or_else(|error| stop(&error));
        let address = listener.local_addr().unwrap_or_else(|error| stop(&error));
        let database = Database::memory().unwrap_or_else(|error| stop(&error));
        #[expect(clippy::disallowed_methods, reason = "the server runs in the background of the test")]
        tokio::spawn(dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()));
        Self { url: format!("http://{address}") }
    }

    /// Starts a server with a lock table for the default configuration.
    pub async fn start() -> Self {
        Self::with_table(&[]).await
    }

    /// Starts a server with a lock table for this configuration.
    pub async fn with_table(environment: &[(&str, &str)]) -> Self {
        let server = Self::empty().await;
        server.locks(environment).operator().create_table().await.unwrap_or_else(|error| stop(&error));
        server
    }

    /// The server's URL.
    pub fn endpoint(&self) -> &str {
        &self.url
    }

    /// Returns the configuration of a function that uses this server. Variables in `environment`
    /// override the defaults.
    pub fn config(&self, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let lambda = [
            ("LOCK_TABLE", TABLE),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_ENDPOINT_URL_DYNAMODB", &self.url),
        ];
        Config::read(&variables(&[environment, &lambda].concat()))
    }

    /// Returns a lock client that uses this server.
    pub fn locks(&self, environment: &[(&str, &str)]) -> LockClient {
        self.config(environment).and_then(|config| config.locks()).unwrap_or_else(|error| stop(&error))
    }

    /// Returns a DynamoDB client, to read and to change rows.
    pub fn client(&self) -> Client {
        let config = self.config(&[]).unwrap_or_else(|error| stop(&error));
        config.dynamodb().unwrap_or_else(|error| stop(&error))
    }

    /// Returns the row of a lock, if there is one.
    pub async fn row(&self, key: &str) -> Option<HashMap<String, AttributeValue>> {
        self.item(TABLE, "key", key).await
    }

    /// Creates another table with this text attribute as its only key.
    pub async fn create_table(&self, table: &str, key: &str) {
        let attribute = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S);
        let hash = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
        let create = self
            .client()
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute.build().unwrap_or_else(|error| stop(&error)))
            .key_schema(hash.build().unwrap_or_else(|error| stop(&error)));
        create.send().await.unwrap_or_else(|error| stop(&error));
    }

    /// Deletes a table.
    pub async fn drop_table(&self, table: &str) {
        self.client().delete_table().table_name(table).send().await.unwrap_or_else(|error| stop(&error));
    }

    /// Returns an item of any table, if there is one.
    pub async fn item(&self, table: &str, key: &str, value: &str) -> Option<HashMap<String, AttributeValue>> {
        let got = self.client().get_item().table_name(table).key(key, AttributeValue::S(value.to_owned()));
        got.consistent_read(true).send().await.unwrap_or_else(|error| stop(&error)).item
    }

    /// Deletes an item of any table.
    pub async fn delete(&self, table: &str, key: &str, value: &str) {
        let delete = self.client().delete_item().table_name(table).key(key, AttributeValue::S(value.to_owned()));
        delete.send().await.unwrap_or_else(|error| stop(&error));
    }

    /// Sets an attribute of an item of any table. `item` has the name and the value of its key.
    pub async fn set(&self, table: &str, item: (&str, &str), attribute: (&str, AttributeValue)) {
        let update = self
            .client()
            .update_item()
            .table_name(table)
            .key(item.0, AttributeValue::S(item.1.to_owned()))
            .update_expression("SET #attribute = :value")
            .expression_attribute_names("#attribute", attribute.0)
            .expression_attribute_values(":value", attribute.1);
        update.send().await.unwrap_or_else(|error| stop(&error));
    }

    /// Puts a row with these text attributes into the lock table.
    pub async fn put(&self, row: &[(&str, &str)]) {
        let mut put = self.client().put_item().table_name(TABLE);
        for (name, value) in row {
            put = put.item(*name, AttributeValue::S((*value).to_owned()));
        }
        put.send().await.unwrap_or_else(|error| stop(&error));
    }
}

/// Returns a lock client whose requests all get this response.
pub fn locks_answered(status: u16, code: &'static str) -> LockClient {
    let connector = SharedHttpConnector::new(Scripted { status, code });
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version_latest()
        .region(aws_sdk_dynamodb::config::Region::new("eu-central-1"))
        .credentials_provider(aws_sdk_dynamodb::config::Credentials::new("test", "test", None, None, "test"))
        .http_client(http_client_fn(move |_, _| connector.clone()));
    let client =
        LockClient::builder(Client::from_conf(config.build()), TABLE).request_timeout(Duration::from_millis(100));
    client.build().unwrap_or_else(|error| stop(&error))
}

/// Returns an event of an invocation that has `seconds` left.
pub fn event(payload: &Value, seconds: f64) -> LambdaEvent<Event> {
    let text = RawValue::from_string(payload.to_string()).unwrap_or_else(|error| stop(&error));
    LambdaEvent::new(text, context(seconds))
}

/// Returns the context of an invocation that has `seconds` left.
pub fn context(seconds: f64) -> Context {
    let mut context = Context::default();
    context.request_id = "8f5a3c1e-0000-4000-8000-000000000001".to_owned();
    context.deadline = (epoch_millis() as f64 + seconds * 1000.0) as u64;
    let function = lambda_runtime::Config {
        function_name: "a-function".to_owned(),
        version: "$LATEST".to_owned(),
        ..lambda_runtime::Config::default()
    };
    context.env_config = Arc::new(function);
    context
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "some tests have to wait")]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Returns the wall clock in epoch milliseconds.
#[expect(clippy::disallowed_methods, reason = "deadlines are epoch milliseconds")]
pub fn epoch_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Formats a time as messages do.
pub fn rfc3339(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let time = aws_smithy_types::DateTime::from_millis(millis).fmt(aws_smithy_types::date_time::Format::DateTime);
    time.unwrap_or_else(|error| stop(&error))
}

/// Asserts that a handler failed with this error name, and that its sentence contains this text.
#[track_caller]
pub fn assert_failure<T: std::fmt::Debug>(result: Result<T, Failure>, error_type: &str, contains: &str) {
    match result {
        Err(failure) if failure.error_type() == error_type && failure.message().contains(contains) => {}
        other => stop(&format!("expected {error_type} with {contains:?}, got {other:?}")),
    }
}

#[derive(Debug)]
struct Scripted {
    status: u16,
    code: &'static str,
}

impl HttpConnector for Scripted {
    fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
        let type_ = format!("com.amazonaws.dynamodb.v20120810#{}", self.code);
        let body = json!({"__type": type_, "message": "as the script says"}).to_string();
        let status = StatusCode::try_from(self.status).unwrap_or_else(|error| stop(&error));
        let mut response = HttpResponse::new(status, body.into());
        response.headers_mut().insert("x-amzn-requestid", "SCRIPTED");
        HttpConnectorFuture::ready(Ok(response))
    }
}

/// Fails the test.
#[track_caller]
#[expect(clippy::panic, reason = "only tests use this module")]
fn stop(reason: &(impl std::fmt::Debug + ?Sized)) -> ! {
    panic!("{reason:?}")
}
