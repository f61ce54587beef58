//! Requests as calls of `aws-sdk-dynamodb`, and what its answers mean.
//!
//! Every call is one HTTP request: the SDK's own retries are switched off, because the decisions
//! repeat requests themselves and must know of each attempt whether it may have been applied. The
//! calls share the connections of the caller's client.

use super::cancellation::meaning_of_reasons;
use super::error::BoxError;
use super::sdk::{DynamoDb, Outcome, answer_to, failed, item, key_of, names_map, naming, send, values_map};
use super::seen::watched;
use super::transport::{Response, Transport};
use crate::protocol::{Action, Answer, Expression, Item, Rejection, Request, Returns, TransactionId};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use std::future::Future;
use std::pin::{Pin, pin};

impl DynamoDb {
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

    async fn delete(&self, request: &Request) -> Outcome {
        let Expression { condition, names, values, .. } = Expression::of(request, &self.schema);
        let call = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(key_of(&self.schema, &request.key)))
            .condition_expression(condition)
            .set_expression_attribute_names(names_map(names))
            .set_expression_attribute_values(Some(values_map(values)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match send!(self, call) {
            Ok(_) => (Answer::Applied(Item::default()), None),
            Err(error) => failed(error, |error| match error {
                DeleteItemError::ConditionalCheckFailedException(refused) => Some(refused.item.clone()),
                _ => None,
            }),
        }
    }

    async fn transact(&self, id: &TransactionId, items: Vec<TransactWriteItem>) -> Outcome {
        let ours = items.len().saturating_sub(1);
        let call = self.client.transact_write_items().set_transact_items(Some(items)).client_request_token(id.as_str());
        match send!(self, call) {
            Ok(_) => (Answer::Applied(Item::default()), None),
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                    (meaning_of_reasons(cancelled.cancellation_reasons(), ours), Some(Box::new(error)))
                }
                _ => (answer_to(&error), Some(Box::new(error))),
            },
        }
    }
}

impl Transport for DynamoDb {
    fn send<'a>(
        &'a self,
        request: &'a Request,
        items: Vec<TransactWriteItem>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>> {
        Box::pin(async move {
            let call = pin!(async {
                match (&request.action, &request.transaction) {
                    (_, Some(id)) => self.transact(id, items).await,
                    (Action::Peek, None) => self.named(self.get(request).await),
                    (Action::Delete { .. }, None) => self.named(self.delete(request).await),
                    (_, None) => self.named(self.update(request).await),
                }
            });
            let ((answer, cause), seen) = watched(call).await;
            let answer = if answer == Answer::Unknown && !seen.sent { never_sent(cause.as_ref()) } else { answer };
            Response { answer, cause, server_time: seen.date }
        })
    }
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

#[cfg(test)]
mod tests {
    use super::super::sdk::Sdk;
    use super::*;
    use crate::protocol::Schema;
    use aws_sdk_dynamodb::config::retry::RetryConfig;
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    use aws_sdk_dynamodb::{Client, Config};
    use aws_smithy_runtime_api::client::http::{
        HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
    };
    use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
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
            let response = table.send(&Request::alone("k".into(), Action::Peek), Vec::new()).await;
            assert_eq!(response.answer, Answer::Unknown);
            assert!(response.server_time.is_some(), "the Date header is caught");
            assert_eq!(sent.0.load(Ordering::Relaxed), so_far + 1);
        }
        // The caller's own calls are as they were.
        shared.list_tables().send().await.unwrap_err();
        assert_eq!(sent.0.load(Ordering::Relaxed), 3 + 5);
    }
}
