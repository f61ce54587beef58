//! Serves an embedded DynamoDB over HTTP, so that several processes can share it.

use crate::aws_json;
use crate::client::client;
use anyhow::Context;
use aws_sdk_dynamodb::Client;
use dynoxide::Database;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// An embedded DynamoDB behind an endpoint on this machine's loopback address.
///
/// It serves from when it is made until it is dropped. It checks no credentials and is always
/// linearizable, and its tables live in memory.
#[derive(Debug)]
pub struct LocalDynamoDb {
    endpoint: String,
    /// Dropped together with this value, which is what stops the server.
    _serving: oneshot::Sender<()>,
}

impl LocalDynamoDb {
    /// Begins to serve an empty DynamoDB on a port that the system chooses.
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub async fn in_memory() -> anyhow::Result<Self> {
        let database = Database::memory().context("the embedded DynamoDB could not be made")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no loopback port could be had")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let (serving, stopped) = oneshot::channel::<()>();
        let server = dynoxide::server::serve_with_shutdown(listener, database, async {
            // Nothing is ever sent: the answer comes when the other half is dropped.
            let _ = stopped.await;
        });
        tokio::spawn(server);
        Ok(Self { endpoint, _serving: serving })
    }

    /// Begins to serve a DynamoDB with these tables, each by its name and that of its partition key, which is a string.
    ///
    /// # Errors
    /// When no loopback port can be had, or DynamoDB refuses a table.
    pub async fn with_tables(tables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let server = Self::in_memory().await?;
        let tables = tables.iter().map(|(name, key)| {
            json!({
                "TableName": name,
                "AttributeDefinitions": [{ "AttributeName": key, "AttributeType": "S" }],
                "KeySchema": [{ "AttributeName": key, "KeyType": "HASH" }],
                "BillingMode": "PAY_PER_REQUEST",
            })
        });
        server.create_tables(&tables.collect::<Vec<_>>()).await?;
        Ok(server)
    }

    /// Creates tables, each as `CreateTable` takes it, and says their names.
    ///
    /// # Errors
    /// When DynamoDB refuses one.
    pub async fn create_tables(&self, tables: &[Value]) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for table in tables {
            aws_json::call(self.endpoint(), "dynamodb", "DynamoDB_20120810.CreateTable", table).await?;
            names.push(table["TableName"].as_str().context("a table has no name")?.to_owned());
        }
        Ok(names)
    }

    /// A client for it, see [`client`](crate::client()).
    pub fn client(&self) -> Client {
        client(&self.endpoint)
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
