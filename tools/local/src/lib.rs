//! A local DynamoDB, to try lambda-lock without an account and without a network.
//!
//! [`LocalDynamoDb`] serves an embedded DynamoDB from this process on a loopback port that the system
//! chooses, and creates clients for it. Nothing has to be installed or started, and nothing is left when
//! the process ends.
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> anyhow::Result<()> {
//! use lambda_lock::{LockClient, Tried};
//! use lambda_lock_local::LocalDynamoDb;
//! use std::time::Duration;
//!
//! let local = LocalDynamoDb::with_tables(&[("locks", "key")]).await?;
//! let locks = LockClient::builder(local.client(), "locks").build()?;
//!
//! let tried = locks.acquire("customer-7").lease(Duration::from_secs(5)).try_once().await?;
//! assert!(matches!(tried, Tried::Granted(_)));
//! # tried.granted().unwrap().release().await?;
//! # Ok(())
//! # }
//! ```

#![allow(clippy::disallowed_methods, reason = "a server runs in the background; only the library may not")]

pub mod authorize;
mod aws_json;
mod client;
mod context;
mod counting;
mod credentials;
pub mod deployed;
mod dynamodb_local;
mod expansion;
pub mod gateway;
mod history;
pub mod lambda;
pub mod misfortune;
mod multi_region;
mod proxy;
pub mod queue;
mod sample;
mod server;
pub mod states;
mod task_tokens;
mod tools;

pub use crate::client::{client, config};
pub use crate::context::context;
pub use crate::counting::{CountingProxy, Counts};
pub use crate::credentials::ContainerCredentials;
pub use crate::dynamodb_local::DynamoDbLocal;
pub use crate::expansion::{ExpandedFunction, ExpandedQueue, Expansion};
pub use crate::gateway::PaymentGateway;
pub use crate::history::{Change, history};
pub use crate::lambda::{Function, Invocation, Lambda, Outcome};
pub use crate::multi_region::{MultiRegion, Refusals};
pub use crate::queue::Queue;
pub use crate::sample::Sample;
pub use crate::server::LocalDynamoDb;
pub use crate::task_tokens::TaskTokens;
pub use crate::tools::python_with_boto3;

/// Compiles the examples of the page with the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/local.md")]
mod page {}
