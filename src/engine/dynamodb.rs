//! Sends lock requests to DynamoDB through the SDK.
//!
//! Each request is sent once: the SDK's own retries are off, because the operations repeat requests themselves and
//! must know of each attempt whether it may have been applied.

use super::attributes::{Attributes, item, key_attributes, placeholder_names, placeholder_values};
use super::fault::{cause_of, fault_of_error, fault_of_unsent, reply_of_cancellation, with_table_name};
use super::interceptor::{TransmissionInterceptor, observed};
use super::transport::{Responding, Response, Transport};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{Builder, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use aws_sdk_dynamodb::{Client, Config};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use lambda_lock_protocol::{
    Expression, Fault, Item, LockKey, Rejection, Request, Returns, RowRead, Schema, Transacted, TransactionId, Written,
};
use std::pin::{Pin, pin};

/// A lock table in DynamoDB.
#[derive(Debug)]
pub(crate) struct DynamoDb {
    client: Client,
    table: String,
    schema: Schema,
}

impl DynamoDb {
    /// The configuration for lock requests, from the caller's settings.
    ///
    /// What differs from the caller's stands in a configuration and not in each call, because the SDK would then put
    /// its configuration together anew for each call: see [`interceptor`](super::interceptor).
    pub(crate) fn config(callers: Builder) -> Config {
        callers
            .retry_config(RetryConfig::disabled())
            // Has nothing to protect: a response has a few hundred bytes, and is waited for with a timeout anyway. It
            // would cost 3 % of the instructions of acquire and release.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .interceptor(TransmissionInterceptor)
            .build()
    }

    /// Makes an SDK client with a [configuration for lock requests](DynamoDb::config).
    pub(crate) fn new(config: Config, table: String, schema: Schema) -> Self {
        Self { client: Client::from_conf(config), table, schema }
    }

    async fn update(&self, request: &Request) -> Response<Written> {
        let Expression { update, condition, names, values, returns } = Expression::of(request, &self.schema);
        let updated = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(key_attributes(&self.schema, &request.key)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(placeholder_names(names))
            .set_expression_attribute_values(Some(placeholder_values(values)))
            .return_values(match returns {
                Returns::Nothing => ReturnValue::None,
                Returns::AllNew => ReturnValue::AllNew,
                Returns::UpdatedOld => ReturnValue::UpdatedOld,
            })
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match updated {
            Ok(output) => match (returns, output.attributes) {
                (Returns::Nothing, _) => Response::new(Written::Applied(Item::default())),
                (_, Some(attributes)) => Response::new(Written::Applied(item(attributes))),
                (_, None) => Response::failed(Fault::Unknown, "the answer lacks the attributes that were asked for"),
            },
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    Response::new(Written::Refused(failed.item.clone().map(item)))
                }
                _ => self.response_to(error),
            },
        }
    }

    async fn get(&self, key: &LockKey) -> Response<Option<Item>> {
        let got = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key_attributes(&self.schema, key)))
            .consistent_read(true)
            .send()
            .await;
        match got {
            Ok(output) => Response::new(output.item.map(item)),
            Err(error) => self.response_to(error),
        }
    }

    /// The last `locks` items are those of the locks.
    async fn transact_items(
        &self,
        id: Option<&TransactionId>,
        items: Vec<TransactWriteItem>,
        locks: usize,
    ) -> Response<Transacted> {
        let first = items.len().saturating_sub(locks);
        let call = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .set_client_request_token(id.map(|id| id.as_str().to_owned()));
        match call.send().await {
            Ok(_) => Response::new(Transacted::Applied),
            Err(error) => {
                let reply = match error.as_service_error() {
                    Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                        reply_of_cancellation(cancelled.cancellation_reasons(), first, locks)
                    }
                    Some(TransactWriteItemsError::TransactionInProgressException(_)) => Ok(Transacted::InProgress),
                    // Without the name of the table: an error may be about another one.
                    _ => Err(fault_of_error(&error)),
                };
                let cause = cause_of(reply.as_ref().err(), error);
                Response { reply, server_time: None, cause: Some(cause) }
            }
        }
    }

    async fn batch_get(&self, keys: &[LockKey]) -> Response<Vec<RowRead>> {
        let row_keys: Vec<Attributes> = keys.iter().map(|key| key_attributes(&self.schema, key)).collect();
        let wanted = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(row_keys.clone())).build();
        let call = match wanted {
            Ok(wanted) => self.client.batch_get_item().request_items(&self.table, wanted),
            Err(error) => return Response::failed(Fault::Rejected(Rejection::Invalid(error.to_string())), error),
        };
        let output = match call.send().await {
            Ok(output) => output,
            Err(error) => return self.response_to(error),
        };
        // A table that is named by its ARN may be answered by its name. Only one table was asked for.
        let unread: Vec<Attributes> =
            output.unprocessed_keys.unwrap_or_default().into_values().flat_map(|unread| unread.keys).collect();
        let mut rows: Vec<Attributes> = output.responses.unwrap_or_default().into_values().flatten().collect();
        let found = row_keys.into_iter().map(|key| {
            if unread.contains(&key) {
                return RowRead::Unread;
            }
            let is_its_row = |row: &Attributes| key.iter().all(|(name, value)| row.get(name) == Some(value));
            match rows.iter().position(is_its_row) {
                Some(index) => RowRead::Row(item(rows.swap_remove(index))),
                None => RowRead::Missing,
            }
        });
        Response::new(found.collect())
    }

    fn response_to<T, E>(&self, error: SdkError<E, HttpResponse>) -> Response<T>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let fault = with_table_name(&self.table, fault_of_error(&error));
        let cause = cause_of(Some(&fault), error);
        Response::failed(fault, cause)
    }
}

impl Transport for DynamoDb {
    fn write<'a>(&'a self, request: &'a Request) -> Responding<'a, Written> {
        Box::pin(async move { responded(pin!(self.update(request))).await })
    }

    fn transact<'a>(&'a self, requests: &'a [Request], items: Vec<TransactWriteItem>) -> Responding<'a, Transacted> {
        let id = requests.first().and_then(|request| request.transaction.as_ref());
        Box::pin(async move { responded(pin!(self.transact_items(id, items, requests.len()))).await })
    }

    fn read<'a>(&'a self, key: &'a LockKey) -> Responding<'a, Option<Item>> {
        Box::pin(async move { responded(pin!(self.get(key))).await })
    }

    fn read_all<'a>(&'a self, keys: &'a [LockKey]) -> Responding<'a, Vec<RowRead>> {
        Box::pin(async move { responded(pin!(self.batch_get(keys))).await })
    }
}

/// Adds to a response what was seen of its transmission.
async fn responded<T>(call: Pin<&mut impl Future<Output = Response<T>>>) -> Response<T> {
    let (mut response, transmission) = observed(call).await;
    response.server_time = transmission.server_time;
    if matches!(response.reply, Err(Fault::Unknown))
        && !transmission.sent
        && let Some(cause) = &response.cause
    {
        response.reply = Err(fault_of_unsent(&**cause));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::super::error::BoxError;
    use super::*;
    use crate::{ErrorKind, LockClient};
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Intercept, Region, RuntimeComponents};
    use aws_sdk_dynamodb::error::ErrorMetadata;
    use aws_sdk_dynamodb::operation::get_item::{GetItemError, GetItemOutput};
    use aws_sdk_dynamodb::types::AttributeValue;
    use aws_sdk_dynamodb::types::error::ResourceNotFoundException;
    use aws_smithy_runtime_api::client::http::{
        HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
    };
    use aws_smithy_runtime_api::client::identity::{
        IdentityFuture, ResolveCachedIdentity, ResolveIdentity, SharedIdentityResolver,
    };
    use aws_smithy_runtime_api::client::interceptors::context::{Error, FinalizerInterceptorContextMut, Output};
    use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
    use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, OrchestratorError};
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_types::body::SdkBody;
    use aws_smithy_types::config_bag::ConfigBag;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Fails each request, and counts them.
    #[derive(Clone, Debug, Default)]
    struct Failing(Arc<AtomicUsize>);

    impl Failing {
        fn config(&self) -> Builder {
            let connector = self.clone();
            Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new("eu-central-1"))
                .credentials_provider(Credentials::new("AKIDEXAMPLE", "secret", None, None, "test"))
                .http_client(http_client_fn(move |_, _| SharedHttpConnector::new(connector.clone())))
        }

        fn requests(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl HttpConnector for Failing {
        fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
            self.0.fetch_add(1, Ordering::Relaxed);
            let mut failure = HttpResponse::new(500.try_into().unwrap(), SdkBody::empty());
            failure.headers_mut().insert("x-amzn-requestid", "R1");
            failure.headers_mut().insert("date", "Sat, 21 Nov 2026 00:00:00 GMT");
            HttpConnectorFuture::ready(Ok(failure))
        }
    }

    async fn peek(callers: &Client) -> Response<Option<Item>> {
        let config = DynamoDb::config(callers.config().to_builder());
        let table = DynamoDb::new(config, "locks".to_owned(), Schema::default());
        table.read(&"k".into()).await
    }

    #[tokio::test]
    async fn a_request_is_sent_once_whatever_the_callers_client_retries() {
        let http = Failing::default();
        let retries = RetryConfig::standard().with_max_attempts(5).with_initial_backoff(Duration::from_millis(1));
        let callers = Client::from_conf(http.config().retry_config(retries).build());

        let response = peek(&callers).await;
        assert_eq!(response.reply, Err(Fault::Unknown));
        assert!(response.server_time.is_some(), "the Date header is read");
        assert_eq!(http.requests(), 1);

        callers.list_tables().send().await.unwrap_err();
        assert_eq!(http.requests(), 1 + 5, "the caller's own calls are as they were");

        let locks = LockClient::builder(callers, "locks").build().unwrap();
        locks.operator().check_table().await.unwrap_err();
        assert_eq!(http.requests(), 1 + 5 + 5, "calls about the table are repeated as the caller has said");
    }

    /// Caches nothing, and counts how often it is asked.
    #[derive(Clone, Debug, Default)]
    struct CountingCache(Arc<AtomicUsize>);

    impl ResolveCachedIdentity for CountingCache {
        fn resolve_cached_identity<'a>(
            &'a self,
            resolver: SharedIdentityResolver,
            components: &'a RuntimeComponents,
            config: &'a ConfigBag,
        ) -> IdentityFuture<'a> {
            self.0.fetch_add(1, Ordering::Relaxed);
            IdentityFuture::new(async move { resolver.resolve_identity(components, config).await })
        }
    }

    #[tokio::test]
    async fn credentials_are_shared_with_the_callers_client_where_its_configuration_names_the_cache() {
        let (http, cache) = (Failing::default(), CountingCache::default());
        let config = http.config().identity_cache(cache.clone()).retry_config(RetryConfig::disabled());
        let callers = Client::from_conf(config.build());

        callers.list_tables().send().await.unwrap_err();
        peek(&callers).await;

        assert_eq!(http.requests(), 2);
        assert_eq!(cache.0.load(Ordering::Relaxed), 2, "both clients ask the one cache");
    }

    /// Answers each request in this way.
    #[derive(Clone, Copy, Debug)]
    enum Answering {
        With(u16, &'static str),
        Foreign(u16, &'static str),
        Not(std::io::ErrorKind, &'static str),
    }

    impl HttpConnector for Answering {
        fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
            let response = |status: u16, body| HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
            HttpConnectorFuture::ready(match *self {
                Self::With(status, body) => {
                    let mut response = response(status, body);
                    response.headers_mut().insert("x-amzn-requestid", "R1");
                    Ok(response)
                }
                Self::Foreign(status, body) => Ok(response(status, body)),
                Self::Not(kind, why) => Err(ConnectorError::io(std::io::Error::new(kind, why).into())),
            })
        }
    }

    fn locks(config: Builder) -> LockClient {
        let config = config.behavior_version(BehaviorVersion::latest());
        let locks =
            LockClient::builder(Client::from_conf(config.build()), "locks").request_timeout(Duration::from_millis(20));
        locks.build().unwrap()
    }

    fn answering(answering: Answering) -> LockClient {
        let connector = SharedHttpConnector::new(answering);
        locks(Failing::default().config().http_client(http_client_fn(move |_, _| connector.clone())))
    }

    /// All that an error says with its sources.
    fn said(error: &crate::Error) -> String {
        let sources = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
        sources.map(|error| error.to_string()).collect::<Vec<_>>().join(" | ")
    }

    #[tokio::test]
    async fn an_unknown_outcome_says_why_there_was_no_response() {
        const UNKNOWN_CODE: &str =
            r#"{"__type":"com.amazon.coral.service#NewerException","message":"as nobody expects"}"#;
        for (how, why) in [
            (Answering::Foreign(503, "<html><body>busy</body></html>"), &["503"][..]),
            (Answering::With(500, ""), &["500"]),
            (Answering::With(200, "{"), &["200"]),
            (Answering::Foreign(200, "<html>log in</html>"), &["200", "not DynamoDB's: check the endpoint"]),
            (Answering::With(400, UNKNOWN_CODE), &["400", "NewerException", "as nobody expects"]),
            (Answering::Not(std::io::ErrorKind::ConnectionRefused, "Connection refused"), &["Connection refused"]),
            (Answering::Not(std::io::ErrorKind::Other, "UnknownIssuer"), &["UnknownIssuer"]),
        ] {
            let locks = answering(how);
            let acquired =
                locks.acquire("k").within(&crate::Budget::lasting(Duration::from_secs(1))).await.unwrap_err();
            let (peeked, table) =
                (locks.operator().peek("k").await.unwrap_err(), locks.operator().check_table().await.unwrap_err());

            for error in [acquired, peeked, table] {
                assert!(error.is_unknown(), "{how:?}: {error}");
                let said = said(&error);
                assert!(why.iter().all(|why| said.contains(why)), "{how:?}: {said}");
            }
        }
    }

    /// As `aws-smithy-mocks` does it: the HTTP response is a dummy, and the output takes its place.
    #[derive(Debug)]
    struct Mock(Option<&'static str>);

    #[dyn_dispatch_hint]
    impl Intercept for Mock {
        fn name(&self) -> &'static str {
            "Mock"
        }

        fn modify_before_attempt_completion(
            &self,
            context: &mut FinalizerInterceptorContextMut<'_>,
            _: &RuntimeComponents,
            _: &mut ConfigBag,
        ) -> Result<(), BoxError> {
            let held_by = |name: &str| {
                let s = |text: &str| AttributeValue::S(text.to_owned());
                GetItemOutput::builder()
                    .item("key", s("k"))
                    .item("ownerName", s(name))
                    .item("leaseDuration", s("20000"))
                    .item("recordVersionNumber", s("v"))
            };
            context.inner_mut().set_output_or_error(match self.0 {
                Some(holder) => Ok(Output::erase(held_by(holder).build())),
                None => {
                    let meta = ErrorMetadata::builder().code("ResourceNotFoundException").message("mocked").build();
                    let missing = ResourceNotFoundException::builder().meta(meta).build();
                    Err(OrchestratorError::operation(Error::erase(GetItemError::ResourceNotFoundException(missing))))
                }
            });
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_mock_of_the_sdk_client_needs_no_request_id() {
        let mocked = |mock| {
            let dummy = SharedHttpConnector::new(Answering::Foreign(418, "a dummy"));
            locks(Failing::default().config().http_client(http_client_fn(move |_, _| dummy.clone())).interceptor(mock))
        };

        let held = mocked(Mock(Some("a-mocked-holder"))).operator().peek("k").await.unwrap().unwrap();
        let missing = mocked(Mock(None)).operator().peek("k").await.unwrap_err();

        assert_eq!(held.holder, "a-mocked-holder");
        assert!(missing.kind() == ErrorKind::Table && missing.to_string().contains("mocked"), "{missing:?}");
    }

    #[tokio::test]
    async fn what_was_never_sent_is_no_unknown_outcome_and_says_why() {
        let bare = || Builder::new().http_client(http_client_fn(|_, _| SharedHttpConnector::new(Failing::default())));
        let (region, credentials) = (Region::new("eu-central-1"), Credentials::new("id", "secret", None, None, "test"));
        for (config, why) in [
            (bare().region(region.clone()), "credentials"),
            (bare().credentials_provider(credentials.clone()), "Region"),
            (bare().region(region.clone()).credentials_provider(credentials.clone()).endpoint_url("no url"), "uri"),
        ] {
            let locks = locks(config);
            let acquired =
                locks.acquire("k").within(&crate::Budget::lasting(Duration::from_secs(1))).await.unwrap_err();
            let (peeked, table) =
                (locks.operator().peek("k").await.unwrap_err(), locks.operator().check_table().await.unwrap_err());
            let listed = locks.operator().list().next().await.unwrap_err();

            for error in [acquired, peeked, table, listed] {
                assert!(
                    error.kind() == ErrorKind::Denied && error.to_string().contains(why),
                    "{why}: {}",
                    said(&error)
                );
            }
        }
    }
}
