#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
//! A lock on DynamoDB for callers that live for seconds.
//!
//! It is made for AWS Lambda. To acquire takes **one request**. Leases and waiting follow the invocation's deadline. The
//! caller renews explicitly between steps, and nothing runs in the background. Every grant has a **fencing token**.
//!
//! # Do you need a lock?
//!
//! Often you do not. Use something else in these cases:
//!
//! * The effect is one DynamoDB item. A **conditional write** is cheaper and leaves nothing behind.
//! * An event that is delivered twice must take effect once. Use `once` (feature of that name). With a lock the second
//!   event repeats the work.
//! * The work may run twice without harm. Let it.
//! * Messages of one customer must not overtake each other. An **SQS FIFO queue** with a message group per customer
//!   keeps them in order, one at a time.
//!
//! Use a lock when at most one caller at a time may do some work, and the work has several steps or affects something
//! that supports no conditions.
//!
//! # Quick start
//!
//! ```no_run
//! use lambda_lock::{Budget, Error, LockClient};
//! use std::time::Duration;
//!
//! # use aws_sdk_dynamodb::types::TransactWriteItem;
//! # async fn orders_of(_: &str) -> Result<Vec<String>, Error> { Ok(Vec::new()) }
//! # async fn statement_of(_: &str, _: &[String]) -> Result<String, Error> { Ok(String::new()) }
//! # fn save(_: &str) -> TransactWriteItem { TransactWriteItem::builder().build() }
//! async fn handler(customer: &str, locks: &LockClient) -> Result<(), Error> {
//!     let budget = Budget::lasting(Duration::from_secs(25)); // what is left of this invocation
//!     locks
//!         .with_lock(customer, &budget, async |lock| {
//!             let orders = orders_of(customer).await?;
//!             lock.checkpoint().await?; // `Lost`: stop, the lock is no longer ours
//!             let statement = statement_of(customer, &orders).await?; // every call makes a new one
//!             lock.commit([save(&statement)]).await?; // applies only while the lock is ours
//!             Ok(())
//!         })
//!         .await // released on success and on error
//! }
//! ```
//!
//! Each caller does the whole work. When the event is delivered twice, the statement is made twice. For work that must
//! not be done twice, such as a payment, use `once`.
//!
//! # The table
//!
//! One item per key, in a table whose partition key is a string attribute called `key` (or as
//! configured). The crate [`lambda_lock_protocol`] describes every attribute and who may use it; the Java client
//! `amazon-dynamodb-lock-client` and the Go client `cirello.io/dynamolock` can share the table. A function that locks and
//! releases needs the actions `dynamodb:UpdateItem` and `dynamodb:GetItem` on it. Every method says its requests and its
//! actions.
//!
//! # Features
//!
//! None is on by default. TLS and async runtime stay your choice: the crate needs `aws-sdk-dynamodb` alone.
//!
//! | feature | brings |
//! |---|---|
//! | `lambda` | [`lambda`]: a [`Budget`] from an invocation's context, a tower layer around a whole handler, errors by name |
//! | `once` | idempotent work: lock and result in one item, done once for each key |
//!
#![cfg_attr(doc, doc = include_str!("../docs/promises.md"))]

// The storeys of the crate, from top to bottom. Imports run down only, which `.ci/layers.py` checks.
//
// | module | what |
// |---|---|
// | `lambda`, `once` | features on top |
// | `client` | the client and its builder: what users meet first |
// | `lock` | the guard of a held lock, and one file for each operation |
// | `engine` | runs an operation: deadline, clocks, requests to DynamoDB, the table |
//
// Below them is the crate lambda-lock-protocol: the decisions, without a clock or the SDK.

mod client;
mod engine;
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod lambda;
mod lock;
#[cfg(feature = "once")]
#[cfg_attr(docsrs, doc(cfg(feature = "once")))]
pub mod once;

#[doc(inline)]
pub use lambda_lock_protocol::{
    Attribute, Dialect, FailedWrite, Instants, LockKey, MAX_LEASE, MAX_NAME_BYTES, Observation, SavedLock,
};

pub use crate::{
    client::{LockClient, LockClientBuilder},
    engine::budget::Budget,
    engine::clock::{Clock, SharedClock, Sleep},
    engine::error::{Error, ErrorKind, Refusal},
    lock::acquire::{Acquire, Reclaim},
    lock::commit::{Commit, CommitOutcome},
    lock::guard::Lock,
    lock::place::{AcquirePlace, Semaphore},
    lock::release::{Release, ReleaseOutcome, ReleaseWorkflow, Sleeper},
    lock::renew::Renew,
    lock::resume::Resume,
    lock::set::LockSet,
    lock::set::acquire::AcquireAll,
    lock::set::in_order::AcquireInOrder,
    lock::set::release::{ReleaseAll, ReleaseAllOutcome},
    lock::set::resume::{ReclaimAll, ResumeAll, SavedLockSet},
    lock::terms::Tried,
    lock::watch::LockWatch,
};

/// For operators: to look at locks, break and freeze them, and make and check the table. It begins with
/// [`LockClient::operator`].
pub mod operator {
    pub use crate::{
        client::Operator,
        lock::freeze::ThawOutcome,
        lock::list::{List, Listed, ListedPage, ListedRow},
        lock::peek::PeekedLock,
    };
}

/// The examples of README and book, compiled with the doc tests.
#[cfg(all(doctest, feature = "lambda", feature = "once"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/charge-once.md")]
    mod charge_once {}
    #[doc = include_str!("../docs/choose.md")]
    mod choose {}
    #[doc = include_str!("../docs/errors.md")]
    mod errors {}
    #[doc = include_str!("../docs/fencing.md")]
    mod fencing {}
    #[doc = include_str!("../docs/managed-instances.md")]
    mod managed_instances {}
    #[doc = include_str!("../docs/other-clients.md")]
    mod other_clients {}
    #[doc = include_str!("../docs/regions.md")]
    mod regions {}
    #[doc = include_str!("../docs/rust.md")]
    mod rust {}
    #[doc = include_str!("../docs/several.md")]
    mod several {}
    #[doc = include_str!("../docs/snapstart.md")]
    mod snapstart {}
}
