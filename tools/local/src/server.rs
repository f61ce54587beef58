//! Serves an embedded DynamoDB over HTTP, so that several processes can share it.
//!
//! It is in this process, or, without the feature `embedded`, in one of its own: a graph of dependencies can have only
//! one SQLite, and a user may have another one already.

use crate::aws_json;
use crate::client::client;
use anyhow::{Context, ensure};
use aws_sdk_dynamodb::Client;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// How long a program may take until it says where it serves. It is many times what it takes on a busy machine.
const MAX_START: Duration = Duration::from_secs(60);

/// An embedded DynamoDB on a loopback port of this machine.
///
/// It serves until it is dropped. It does not check credentials, is always linearizable, and keeps its tables in
/// memory.
pub struct LocalDynamoDb {
    endpoint: String,
    /// Dropping it stops the server.
    _serving: Box<dyn Send + Sync>,
}

impl fmt::Debug for LocalDynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalDynamoDb").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl LocalDynamoDb {
    /// Starts an empty DynamoDB on a port that the system chooses. Without the feature `embedded` it is a process of its
    /// own.
    ///
    /// # Errors
    /// Returns an error if there is no free loopback port.
    #[cfg(feature = "embedded")]
    pub async fn in_memory() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("there is no free loopback port")?;
        let database = dynoxide::Database::memory().context("the embedded DynamoDB could not be created")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let (serving, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = dynoxide::server::serve_with_shutdown(listener, database, async {
            // Nothing is sent. This ends when the other half is dropped.
            let _ = stopped.await;
        });
        tokio::spawn(server);
        Ok(Self { endpoint, _serving: Box::new(serving) })
    }

    /// Starts an empty DynamoDB on a port that the system chooses, in a process of its own. Its program is the
    /// `lambda-lock-local` in `PATH`. Where this package is part of a clone, the first call compiles the program there, which
    /// takes some minutes once.
    ///
    /// # Errors
    /// Returns an error if the program cannot be built or started.
    #[cfg(not(feature = "embedded"))]
    pub async fn in_memory() -> anyhow::Result<Self> {
        static PROGRAM: tokio::sync::OnceCell<std::path::PathBuf> = tokio::sync::OnceCell::const_new();
        if !crate::lambda::is_clone() {
            let install =
                concat!("run `cargo install --locked lambda-lock-local@", env!("CARGO_PKG_VERSION"), "` once");
            return Self::of_program(Path::new("lambda-lock-local")).await.context(install);
        }
        let build = async || {
            let mut built = crate::lambda::cargo_build(&["--bin", "lambda-lock-local"]).await?;
            built.remove("lambda-lock-local").context("cargo has built no lambda-lock-local")
        };
        Self::of_program(PROGRAM.get_or_try_init(build).await?).await
    }

    /// Starts an empty DynamoDB in a process of this program, which is a `lambda-lock-local` that was built before. The
    /// process ends when this is dropped, and also when this process is killed.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started, or does not say within a minute where it serves.
    pub async fn of_program(program: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg("dynamodb").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        let said = process.stdout.take().context("the process has no output")?;
        let mut said = BufReader::new(said).lines();
        let endpoint = tokio::time::timeout(MAX_START, said.next_line())
            .await
            .with_context(|| format!("{} said nothing within {MAX_START:?}", program.display()))??
            .unwrap_or_default();
        ensure!(endpoint.starts_with("http://"), "{} said {endpoint:?} and no endpoint", program.display());
        Ok(Self { endpoint, _serving: Box::new(process) })
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
