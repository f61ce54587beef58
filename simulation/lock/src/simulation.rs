//! The interface for this project's simulation: a simulated network under the real client, and the real transport to
//! DynamoDB to compare it with. Not part of the public interface.

use crate::client::LockClientBuilder;
use crate::engine::answer;
use crate::engine::dynamodb::DynamoDb;
use crate::engine::transaction::Transaction;
use crate::engine::transport::{Response, Transport};
use crate::protocol::{Answer, Request, Schema};
use aws_sdk_dynamodb::types::{CancellationReason, TransactWriteItem};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::SystemTime;

/// The future of a simulated request.
pub type Replying<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// Carries requests to a table. Each call sends one request.
pub trait Network: fmt::Debug + Send + Sync {
    /// Sends one request.
    /// `writes` are the caller's own writes if the request is part of a transaction.
    fn send<'a>(&'a self, request: Request, writes: &'a [TransactWriteItem]) -> Replying<'a>;
}

/// The response to a request.
#[derive(Debug)]
pub struct Reply {
    /// What is known about the request afterwards.
    pub answer: Answer,
    /// The server's clock, if the response contains it.
    pub server_time: Option<SystemTime>,
}

/// The meaning of a cancelled transaction, by its reasons. The reason at `ours` belongs to the lock's own write.
pub fn meaning_of_reasons(reasons: &[CancellationReason], ours: usize) -> Answer {
    answer::answer_of_cancellation(reasons, ours)
}

/// A network as a transport of the client.
#[derive(Debug)]
pub(crate) struct Plugged(Box<dyn Network>);

impl Transport for Plugged {
    fn send<'a>(
        &'a self,
        request: &'a Request,
        items: Vec<TransactWriteItem>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>> {
        Box::pin(async move {
            let writes = &items[..items.len().saturating_sub(1)];
            let Reply { answer, server_time } = self.0.send(request.clone(), writes).await;
            Response { answer, server_time, cause: None }
        })
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
        let dynamodb = DynamoDb::new(client.config(), table.to_owned(), schema.clone());
        Self { dynamodb, table: table.to_owned(), schema }
    }
}

impl Network for Real {
    fn send<'a>(&'a self, request: Request, writes: &'a [TransactWriteItem]) -> Replying<'a> {
        Box::pin(async move {
            let Self { dynamodb, table, schema } = self;
            let items = Transaction::of(writes).items(table, schema, &request).unwrap_or_default();
            let Response { answer, server_time, .. } = Transport::send(dynamodb, &request, items).await;
            Reply { answer, server_time }
        })
    }
}
