//! The interface between operations and DynamoDB: it takes a typed request and returns a typed response.

use super::error::BoxError;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{Answer, LockKey, Request};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::SystemTime;

/// Sends one request once, and returns the response. It does not retry. The operations decide what an unknown outcome
/// means, and what to send next.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    fn send<'a>(&'a self, request: &'a Request) -> Responding<'a>;

    /// Sends one transaction once. `items` are all of its items: the caller's, and then those of the requests.
    fn send_together<'a>(&'a self, requests: &'a [Request], items: Vec<TransactWriteItem>) -> Responding<'a>;

    /// Reads these rows once, strongly consistent.
    fn read_all<'a>(&'a self, keys: &'a [LockKey]) -> Responding<'a>;
}

pub(crate) type Responding<'a> = Pin<Box<dyn Future<Output = Response> + Send + 'a>>;

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
