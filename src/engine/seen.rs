//! What a call of the SDK saw on its way: whether its request was sent, and the server's clock, from the `Date`
//! header of its answer.
//!
//! An interceptor sees both. To give each call an interceptor of its own, which could hand them to it,
//! costs a call some 5 % of its CPU, since the SDK then puts its configuration together anew. So one interceptor
//! stands in the client's configuration, and leaves them where whoever polls the call finds them: the SDK runs
//! interceptors in the task that waits for the call, while that is polled.

use super::error::BoxError;
use aws_sdk_dynamodb::config::{Intercept, RuntimeComponents};
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::Format;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::SystemTime;

/// What one call saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its request was handed to the connection. If not, it has no effect: credentials or the Region are missing.
    pub(crate) sent: bool,
    /// The server's clock.
    pub(crate) date: Option<SystemTime>,
}

impl Seen {
    const NOTHING: Self = Self { sent: false, date: None };

    fn and(self, later: Self) -> Self {
        Self { sent: self.sent || later.sent, date: later.date.or(self.date) }
    }
}

thread_local! {
    static SEEN: Cell<Seen> = const { Cell::new(Seen::NOTHING) };
}

/// Looks at each request when it is sent, and at each answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch;

#[dyn_dispatch_hint]
impl Intercept for Watch {
    fn name(&self) -> &'static str {
        "LockWatch"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        SEEN.set(SEEN.get().and(Seen { sent: true, date: None }));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.response().headers();
        // Only DynamoDB's own answers count: what stands in between may have any clock.
        let date = headers.get("x-amzn-requestid").and_then(|_| headers.get("date"));
        let date = date.and_then(|date| DateTime::from_str(date, Format::HttpDate).ok());
        let date = date.and_then(|date| SystemTime::try_from(date).ok());
        SEEN.set(SEEN.get().and(Seen { sent: true, date }));
        Ok(())
    }
}

/// Waits for a call, and brings with its output what [`Watch`] saw of it.
pub(crate) async fn watched<T>(mut call: Pin<&mut impl Future<Output = T>>) -> (T, Seen) {
    let mut seen = Seen::NOTHING;
    let output = poll_fn(|context| {
        SEEN.set(Seen::NOTHING);
        let polled = call.as_mut().poll(context);
        seen = seen.and(SEEN.take());
        polled
    });
    (output.await, seen)
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
                SEEN.set(Seen { sent: true, date });
            }
            context.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    async fn date_of(date: Option<SystemTime>) -> Option<SystemTime> {
        watched(std::pin::pin!(call(date))).await.1.date
    }

    #[tokio::test]
    async fn calls_on_one_thread_get_each_its_own_date() {
        let [one, two] = [1, 2].map(|seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)));
        SEEN.set(Seen { sent: true, date: two });
        let dates = tokio::join!(date_of(None), date_of(one), date_of(two), date_of(None));
        assert_eq!(dates, (None, one, two, None));
    }
}
