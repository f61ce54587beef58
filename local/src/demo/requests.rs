//! Tells of every HTTP request before it is sent, retries included, so that even those of a worker
//! that is killed are counted.

use super::message::{About, Event};
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

/// Sits in a client and tells what it sends.
#[derive(Debug)]
pub(crate) struct Telling(pub(crate) About);

impl Intercept for Telling {
    fn name(&self) -> &'static str {
        "Telling"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // `DynamoDB_20120810.UpdateItem`: the API's version, then the operation.
        let target = context.request().headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        Event::Sent { about: self.0, operation }.say()?;
        Ok(())
    }
}
