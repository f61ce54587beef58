//! The server's clock: the `Date` header of an answer, which the SDK's outputs do not show.
//!
//! An interceptor sees the header. To give each call an interceptor of its own, which could hand the date to it,
//! costs a call some 5 % of its CPU, since the SDK then puts its configuration together anew. So one interceptor
//! stands in the client's configuration, and leaves the date where whoever polls the call finds it: the SDK runs
//! interceptors in the task that waits for the call, while that is polled.

use crate::error::BoxError;
use aws_sdk_dynamodb::config::{Intercept, RuntimeComponents};
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_types::DateTime;
use aws_smithy_types::config_bag::ConfigBag;
use aws_smithy_types::date_time::Format;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::SystemTime;

thread_local! {
    static SEEN: Cell<Option<SystemTime>> = const { Cell::new(None) };
}

/// Reads the `Date` header of each answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadDate;

#[dyn_dispatch_hint]
impl Intercept for ReadDate {
    fn name(&self) -> &'static str {
        "LockReadDate"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, Format::HttpDate).ok());
        SEEN.set(date.and_then(|date| SystemTime::try_from(date).ok()));
        Ok(())
    }
}

/// Waits for a call, and brings with its output the date that [`ReadDate`] saw.
pub(crate) async fn with_date<T>(mut call: Pin<&mut impl Future<Output = T>>) -> (T, Option<SystemTime>) {
    let mut date = None;
    let output = poll_fn(|context| {
        SEEN.set(None);
        let polled = call.as_mut().poll(context);
        date = SEEN.take().or(date);
        polled
    });
    (output.await, date)
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
                SEEN.set(date);
            }
            context.waker().wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    async fn date_of(date: Option<SystemTime>) -> Option<SystemTime> {
        with_date(std::pin::pin!(call(date))).await.1
    }

    #[tokio::test]
    async fn calls_on_one_thread_get_each_its_own_date() {
        let [one, two] = [1, 2].map(|seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)));
        SEEN.set(two);
        let dates = tokio::join!(date_of(None), date_of(one), date_of(two), date_of(None));
        assert_eq!(dates, (None, one, two, None));
    }
}
