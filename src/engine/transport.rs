//! The interface between operations and DynamoDB: it takes typed requests and returns typed replies.

use super::error::BoxError;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{Fault, Item, LockKey, Reply, Request, RowRead, Transacted, Written};
use std::fmt;
use std::pin::Pin;
use std::time::SystemTime;

/// Sends one request once, and returns the response. It does not retry. The operations decide what an unknown outcome
/// means, and what to send next.
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    fn write<'a>(&'a self, request: &'a Request) -> Responding<'a, Written>;

    /// Sends one transaction. `items` are all of its items: the caller's, and then those of the requests.
    fn transact<'a>(&'a self, requests: &'a [Request], items: Vec<TransactWriteItem>) -> Responding<'a, Transacted>;

    /// Reads this row, strongly consistent.
    fn read<'a>(&'a self, key: &'a LockKey) -> Responding<'a, Option<Item>>;

    /// Reads these rows, strongly consistent.
    fn read_all<'a>(&'a self, keys: &'a [LockKey]) -> Responding<'a, Vec<RowRead>>;
}

pub(crate) type Responding<'a, T> = Pin<Box<dyn Future<Output = Response<T>> + Send + 'a>>;

#[derive(Debug)]
pub(crate) struct Response<T> {
    pub(crate) reply: Reply<T>,
    /// The server's clock, from the `Date` header.
    pub(crate) server_time: Option<SystemTime>,
    /// The error that the SDK returned, if it did.
    pub(crate) cause: Option<BoxError>,
}

impl<T> Response<T> {
    /// Of a call that succeeded, or whose condition failed.
    pub(crate) fn new(reply: T) -> Self {
        Self { reply: Ok(reply), server_time: None, cause: None }
    }

    /// Of a call that failed for this reason.
    pub(crate) fn failed(fault: Fault, cause: impl Into<BoxError>) -> Self {
        Self { reply: Err(fault), server_time: None, cause: Some(cause.into()) }
    }
}
