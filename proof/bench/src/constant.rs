//! An SDK client whose requests are answered immediately from memory, as DynamoDB would answer them.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region, SharedHttpClient};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_types::DateTime;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::date_time::Format;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The response to a granted Claim: the whole row.
const GRANTED: &str = r#"{"Attributes":{"key":{"S":"customer-7"},"ownerName":{"S":"bench-1"},"leaseDuration":{"S":"30000"},"recordVersionNumber":{"S":"ll1-0123456789abcdef0123456789abcdef-0199d6a4c8000123456789abcdef"},"fencingToken":{"N":"1760000000001"},"leaseEndsAt":{"N":"1760000030000"}}}"#;
/// The response to a write that requests nothing.
const NOTHING: &str = "{}";

/// The requests that were sent.
pub(crate) type Sent = Arc<Mutex<Vec<serde_json::Value>>>;

/// A client as a careful author configures it: standard retries, a timeout for each attempt.
pub(crate) fn client() -> Client {
    client_with(Connector::default())
}

/// The same client, and the requests that it sends.
#[cfg(test)]
pub(crate) fn recording_client() -> (Client, Sent) {
    let sent = Sent::default();
    (client_with(Connector { sent: Some(sent.clone()), ..Connector::default() }), sent)
}

fn client_with(connector: Connector) -> Client {
    let connector = SharedHttpConnector::new(connector);
    let http: SharedHttpClient = http_client_fn(move |_, _| connector.clone());
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .credentials_provider(Credentials::new("bench", "bench", None, None, "bench"))
        .retry_config(RetryConfig::standard())
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(1)).build())
        .http_client(http)
        .build();
    Client::from_conf(config)
}

#[derive(Debug, Default)]
struct Connector {
    date: Mutex<Date>,
    sent: Option<Sent>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().unwrap_or_default();
        if let Some(sent) = &self.sent {
            lock(sent).extend(serde_json::from_slice(body));
        }
        let asks_for_row = body.windows(9).any(|window| window == br#""ALL_NEW""#);
        let answer = SdkBody::from(if asks_for_row { GRANTED } else { NOTHING });
        let mut response = HttpResponse::new(http_ok(), answer);
        let headers = response.headers_mut();
        headers.insert("content-type", "application/x-amz-json-1.0");
        headers.insert("x-amzn-requestid", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABCDEF");
        headers.insert("date", lock(&self.date).now());
        HttpConnectorFuture::ready(Ok(response))
    }
}

fn http_ok() -> aws_smithy_runtime_api::http::StatusCode {
    // Cannot fail, because 200 has three digits.
    aws_smithy_runtime_api::http::StatusCode::try_from(200).unwrap_or_else(|_| unreachable!())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The `Date` header. It is formatted once a second.
#[derive(Debug, Default)]
struct Date {
    second: u64,
    text: String,
}

impl Date {
    fn now(&mut self) -> String {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if second != self.second {
            self.second = second;
            let date = DateTime::from_secs(i64::try_from(second).unwrap_or_default());
            self.text = date.fmt(Format::HttpDate).unwrap_or_default();
        }
        self.text.clone()
    }
}
