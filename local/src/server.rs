//! Serves an embedded DynamoDB over HTTP, so that several processes can share it.

use crate::aws_json;
use crate::client::client;
use anyhow::Context;
use aws_sdk_dynamodb::Client;
use dynoxide::Database;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// An embedded DynamoDB on a loopback port of this machine.
///
/// It serves until it is dropped. It does not check credentials, is always linearizable, and keeps its tables in
/// memory.
#[derive(Debug)]
pub struct LocalDynamoDb {
    endpoint: String,
    /// Dropping it stops the server.
    _serving: oneshot::Sender<()>,
}

impl LocalDynamoDb {
    /// Starts an empty DynamoDB on a port that the system chooses.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port.
    pub async fn in_memory() -> anyhow::Result<Self> {
        let database = Database::memory().context("the embedded DynamoDB could not be created")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("there is no free loopback port")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let (serving, stopped) = oneshot::channel::<()>();
        let server = dynoxide::server::serve_with_shutdown(listener, database, async {
            // Nothing is sent. This ends when the other half is dropped.
            let _ = stopped.await;
        });
        tokio::spawn(server);
        Ok(Self { endpoint, _serving: serving })
    }

    /// Starts a DynamoDB with these tables. Each is given by its name and the name of its partition key, which is a
    /// string.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port, or if DynamoDB rejects a table.
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

    /// Creates tables, each from a request of `CreateTable`, and returns their names.
    ///
    /// # Errors
    /// Returns an error if DynamoDB rejects one.
    pub async fn create_tables(&self, tables: &[Value]) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for table in tables {
            aws_json::call(self.endpoint(), "dynamodb", "DynamoDB_20120810.CreateTable", table).await?;
            names.push(table["TableName"].as_str().context("a table has no name")?.to_owned());
        }
        Ok(names)
    }

    /// Returns a client for this DynamoDB, see [`client`](crate::client()).
    pub fn client(&self) -> Client {
        client(&self.endpoint)
    }

    /// The endpoint's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}
