//! The one seam between decisions and the world: a typed request in, a typed answer out.

use crate::error::BoxError;
use crate::protocol::{Answer, Request};
use aws_sdk_dynamodb::types::TransactWriteItem;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::SystemTime;

/// Sends one request, once, and says what is known afterwards. No retries: the decisions know what
/// an attempt of unknown outcome means, and what to ask next.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// `writes` are the caller's own, for a request that is part of a [transaction](Request::transaction);
    /// none for one that goes alone.
    fn send<'a>(
        &'a self,
        request: Request,
        writes: &'a [TransactWriteItem],
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>>;
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) answer: Answer,
    /// The server's clock, from the `Date` header.
    pub(crate) server_time: Option<SystemTime>,
    /// What the SDK said, when it was no success.
    pub(crate) cause: Option<BoxError>,
}
