//! Whether a response is DynamoDB's. What is between may respond too: the page of a network to log in, a proxy, or a server at a
//! wrong endpoint.

use aws_sdk_dynamodb::config::interceptors::AfterDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

/// The header that every response of DynamoDB has.
pub(crate) const REQUEST_ID: &str = "x-amzn-requestid";

/// Fails requests whose response is not DynamoDB's, as the lock client does with its own.
#[derive(Debug)]
pub(crate) struct RequestIds;

impl Intercept for RequestIds {
    fn name(&self) -> &'static str {
        "RequestIds"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        if response.status().is_server_error() || response.headers().get(REQUEST_ID).is_some() {
            return Ok(());
        }
        Err("the response has no x-amzn-RequestId, so it is not DynamoDB's: check the endpoint, and what is between, such as a \
             proxy, or a network that asks to log in"
            .into())
    }
}
