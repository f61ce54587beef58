//! The interface for this project's simulation: a simulated network under the real client, and the real transport to
//! DynamoDB to compare it with. Not part of the public interface.

use crate::client::LockClientBuilder;
use crate::engine::dynamodb::DynamoDb;
use crate::engine::fault;
use crate::engine::transaction::Transaction;
use crate::engine::transport::{Responding, Response, Transport};
use aws_sdk_dynamodb::types::{CancellationReason, TransactWriteItem};
use lambda_lock_protocol::{Item, LockKey, Reply, Request, RowRead, Schema, Transacted, Written};
use std::fmt;
use std::pin::Pin;
use std::time::SystemTime;

/// The future of a simulated request.
pub type Replying<'a, T> = Pin<Box<dyn Future<Output = Received<T>> + Send + 'a>>;

/// Carries requests to a table. Each call sends one request.
pub trait Network: fmt::Debug + Send + Sync {
    /// Sends a write that goes alone.
    fn write(&self, request: Request) -> Replying<'_, Written>;

    /// Sends one transaction: these requests, with the caller's own writes.
    fn transact<'a>(&'a self, requests: Vec<Request>, writes: &'a [TransactWriteItem]) -> Replying<'a, Transacted>;

    /// Reads this row.
    fn read(&self, key: LockKey) -> Replying<'_, Option<Item>>;

    /// Reads these rows.
    fn read_all(&self, keys: Vec<LockKey>) -> Replying<'_, Vec<RowRead>>;
}

/// The response to a request.
#[derive(Debug)]
pub struct Received<T> {
    /// What is known about the request afterwards.
    pub reply: Reply<T>,
    /// The server's clock, if the response contains it.
    pub server_time: Option<SystemTime>,
}

/// The meaning of a cancelled transaction, by its reasons. Those from `first` on belong to the writes of the locks.
pub fn meaning_of_reasons(reasons: &[CancellationReason], first: usize, locks: usize) -> Reply<Transacted> {
    fault::reply_of_cancellation(reasons, first, locks)
}

/// A network as a transport of the client.
#[derive(Debug)]
pub(crate) struct Plugged(Box<dyn Network>);

impl Transport for Plugged {
    fn write<'a>(&'a self, request: &'a Request) -> Responding<'a, Written> {
        Box::pin(async { self.0.write(request.clone()).await.into() })
    }

    fn transact<'a>(&'a self, requests: &'a [Request], items: Vec<TransactWriteItem>) -> Responding<'a, Transacted> {
        Box::pin(async move {
            let writes = &items[..items.len().saturating_sub(requests.len())];
            self.0.transact(requests.to_vec(), writes).await.into()
        })
    }

    fn read<'a>(&'a self, key: &'a LockKey) -> Responding<'a, Option<Item>> {
        Box::pin(async { self.0.read(key.clone()).await.into() })
    }

    fn read_all<'a>(&'a self, keys: &'a [LockKey]) -> Responding<'a, Vec<RowRead>> {
        Box::pin(async { self.0.read_all(keys.to_vec()).await.into() })
    }
}

impl<T> From<Received<T>> for Response<T> {
    fn from(Received { reply, server_time }: Received<T>) -> Self {
        Self { reply, server_time, cause: None }
    }
}

impl<T> From<Response<T>> for Received<T> {
    fn from(Response { reply, server_time, .. }: Response<T>) -> Self {
        Self { reply, server_time }
    }
}

impl LockClientBuilder {
    /// Sends lock requests over this network instead of to DynamoDB.
    pub fn network(mut self, network: impl Network + 'static) -> Self {
        self.network = Some(Plugged(Box::new(network)));
        self
    }
}

/// The real transport through the SDK.
#[derive(Debug)]
pub struct Real {
    dynamodb: DynamoDb,
    table: String,
    schema: Schema,
}

impl Real {
    /// A transport to this table.
    pub fn new(client: aws_sdk_dynamodb::Client, table: &str, schema: Schema) -> Self {
        let config = DynamoDb::config(client.config().to_builder());
        let dynamodb = DynamoDb::new(config, table.to_owned(), schema.clone());
        Self { dynamodb, table: table.to_owned(), schema }
    }
}

impl Network for Real {
    fn write(&self, request: Request) -> Replying<'_, Written> {
        Box::pin(async move { Transport::write(&self.dynamodb, &request).await.into() })
    }

    fn transact<'a>(&'a self, requests: Vec<Request>, writes: &'a [TransactWriteItem]) -> Replying<'a, Transacted> {
        Box::pin(async move {
            let Self { dynamodb, table, schema } = self;
            let items = Transaction::of(writes).items(table, schema, &requests).unwrap_or_default();
            Transport::transact(dynamodb, &requests, items).await.into()
        })
    }

    fn read(&self, key: LockKey) -> Replying<'_, Option<Item>> {
        Box::pin(async move { Transport::read(&self.dynamodb, &key).await.into() })
    }

    fn read_all(&self, keys: Vec<LockKey>) -> Replying<'_, Vec<RowRead>> {
        Box::pin(async move { Transport::read_all(&self.dynamodb, &keys).await.into() })
    }
}
