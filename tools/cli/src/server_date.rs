//! What DynamoDB's clock says, from the `Date` of a response.

use crate::request_id::REQUEST_ID;
use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Reads the date of the response to one request, and when the request was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerDate(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    sent: Option<SystemTime>,
    offset: Option<f64>,
}

impl ServerDate {
    /// By how many seconds DynamoDB's clock is ahead. Its date has whole seconds, so half a second is added.
    pub(crate) fn offset(&self) -> Option<f64> {
        self.seen().offset
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for ServerDate {
    fn name(&self) -> &'static str {
        "ServerDate"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.seen().sent = Some(SystemTime::now());
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let seconds = |at: SystemTime| DateTime::from(at).as_secs_f64();
        let headers = context.response().headers();
        // What is between may respond too, and have any clock.
        let date = headers.get(REQUEST_ID).and_then(|_| headers.get("date"));
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        let mut seen = self.seen();
        if let (Some(date), Some(sent)) = (date, seen.sent) {
            let middle = (seconds(sent) + seconds(SystemTime::now())) / 2.0;
            seen.offset = Some(date.as_secs_f64() + 0.5 - middle);
        }
        Ok(())
    }
}
