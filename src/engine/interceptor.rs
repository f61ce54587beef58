//! The interceptor of lock requests: whether a request was sent, whether the response is DynamoDB's, and the server's clock,
//! from the `Date` header of the response.
//!
//! One interceptor stands in the configuration of the SDK client for all calls. An interceptor for each call could
//! hand over what it saw by itself, but the SDK puts its configuration together anew for a call with an interceptor of
//! its own, which costs about 5 % of the CPU of acquire and release. So the interceptor leaves what it saw in a
//! thread-local, where [`observed`] takes it: the SDK runs interceptors in the task that waits for the call, while
//! that is polled.

use super::error::BoxError;
use aws_sdk_dynamodb::config::{Intercept, RuntimeComponents};
use aws_smithy_runtime_api::client::interceptors::context::{
    AfterDeserializationInterceptorContextRef, BeforeDeserializationInterceptorContextRef,
    BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::Format;
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::SystemTime;

/// The header that every response of DynamoDB has, as AWS documents it. What is between may respond too: the page of a network
/// to log in, a proxy, or a server at a wrong endpoint.
const REQUEST_ID: &str = "x-amzn-requestid";

/// What the interceptor saw of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transmission {
    /// The request was handed to the connection. If not, it has no effect: credentials or the Region are missing.
    pub(crate) sent: bool,
    /// The server's clock.
    pub(crate) server_time: Option<SystemTime>,
}

impl Transmission {
    const NONE: Self = Self { sent: false, server_time: None };

    fn and(self, later: Self) -> Self {
        Self { sent: self.sent || later.sent, server_time: later.server_time.or(self.server_time) }
    }
}

thread_local! {
    /// What was seen during the current poll of a call.
    static SEEN: Cell<Transmission> = const { Cell::new(Transmission::NONE) };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TransmissionInterceptor;

#[dyn_dispatch_hint]
impl Intercept for TransmissionInterceptor {
    fn name(&self) -> &'static str {
        "LockTransmission"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        SEEN.set(SEEN.get().and(Transmission { sent: true, server_time: None }));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.response().headers();
        // Only DynamoDB's own responses count: a proxy in between may have any clock.
        let date = headers.get(REQUEST_ID).and_then(|_| headers.get("date"));
        let date = date.and_then(|date| DateTime::from_str(date, Format::HttpDate).ok());
        let server_time = date.and_then(|date| SystemTime::try_from(date).ok());
        SEEN.set(SEEN.get().and(Transmission { sent: true, server_time }));
        Ok(())
    }

    /// A response that is not DynamoDB's says nothing about the request, whatever stands in it. A failure of a server says nothing
    /// anyway, and the SDK may repeat its request.
    ///
    /// After the deserialization, because interceptors of `aws-smithy-mocks` then put their output in the place of this error.
    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        let is_dynamodbs = response.status().is_server_error() || response.headers().get(REQUEST_ID).is_some();
        if is_dynamodbs { Ok(()) } else { Err(NotDynamoDb.into()) }
    }
}

/// The error for a response of something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotDynamoDb;

impl fmt::Display for NotDynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the response has no x-amzn-RequestId, so it is not DynamoDB's: check the endpoint, and what is between, such as a \
             proxy, or a network that asks to log in",
        )
    }
}

impl std::error::Error for NotDynamoDb {}

/// Waits for a call. Returns its output, and what [`TransmissionInterceptor`] saw of it.
pub(crate) async fn observed<T>(mut call: Pin<&mut impl Future<Output = T>>) -> (T, Transmission) {
    let mut transmission = Transmission::NONE;
    let output = poll_fn(|context| {
        SEEN.set(Transmission::NONE);
        let polled = call.as_mut().poll(context);
        transmission = transmission.and(SEEN.take());
        polled
    });
    (output.await, transmission)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;
    use std::time::Duration;

    /// A call whose answer comes at its second poll, and which is read to its end at the third.
    async fn call(date: Option<SystemTime>) {
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                SEEN.set(Transmission { sent: true, server_time: date });
            }
            context.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    async fn date_of(date: Option<SystemTime>) -> Option<SystemTime> {
        observed(std::pin::pin!(call(date))).await.1.server_time
    }

    #[tokio::test]
    async fn calls_on_one_thread_get_each_its_own_date() {
        let [one, two] = [1, 2].map(|seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)));
        SEEN.set(Transmission { sent: true, server_time: two });
        let dates = tokio::join!(date_of(None), date_of(one), date_of(two), date_of(None));
        assert_eq!(dates, (None, one, two, None));
    }
}
