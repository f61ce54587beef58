//! The interface between operations and DynamoDB: it takes a typed request and returns a typed response.

use super::error::BoxError;
use crate::protocol::{Answer, Request};
use aws_sdk_dynamodb::types::TransactWriteItem;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::SystemTime;

/// Sends one request once, and returns the response. It does not retry. The operations decide what an unknown outcome
/// means, and what to send next.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// `items` are those of a [transaction](Request::transaction), with the lock's own as the last one. They are
    /// empty for a request that goes alone.
    fn send<'a>(
        &'a self,
        request: &'a Request,
        items: Vec<TransactWriteItem>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>>;
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) answer: Answer,
    /// The server's clock, from the `Date` header.
    pub(crate) server_time: Option<SystemTime>,
    /// The error that the SDK returned, if it did.
    pub(crate) cause: Option<BoxError>,
}

impl Response {
    /// Of a call that succeeded, or whose condition failed.
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer, server_time: None, cause: None }
    }

    /// Of a call that failed for this reason.
    pub(crate) fn failed(answer: Answer, cause: impl Into<BoxError>) -> Self {
        Self { answer, server_time: None, cause: Some(cause.into()) }
    }
}
