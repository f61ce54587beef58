//! Reports every HTTP request before it is sent, including retries. So the requests of a killed
//! worker count too.

use super::message::{About, Event};
use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;

/// An interceptor that reports the requests of a client.
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
        // `DynamoDB_20120810.UpdateItem` is the version of the API and the operation.
        let target = context.request().headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        Event::Sent { about: self.0, operation }.say()?;
        Ok(())
    }
}
