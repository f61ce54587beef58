#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
//! A lock on DynamoDB for callers that live for seconds.
//!
//! It is made for AWS Lambda. To acquire takes **one request**. Leases and waiting follow the invocation's deadline. A lease
//! is renewed when the caller says so, and nothing runs in the background. Every grant has a **fencing token**.
//!
//! # Do you need a lock?
//!
//! Often you do not. Use something else in these cases:
//!
//! * The effect is one DynamoDB item. A **conditional write** is cheaper and leaves nothing behind.
//! * An event that is delivered twice must take effect once. Use `locks.once(key)`, with the feature `once`. A lock alone
//!   does not stop the second event: it does the work again, after the first.
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
//! # fn main_once(dynamodb: aws_sdk_dynamodb::Client) -> Result<(), Error> {
//! // Once, in `main`: an `aws_sdk_dynamodb::Client`, and the name of the table.
//! let locks = LockClient::builder(dynamodb, "locks").build()?;
//! # Ok(())
//! # }
//!
//! async fn handler(customer: &str, locks: &LockClient) -> Result<(), Error> {
//!     // What is left of this invocation. With the feature `lambda`: Budget::from(&event.context).
//!     let budget = Budget::lasting(Duration::from_secs(25));
//!     locks
//!         .with_lock(customer, &budget, async |lock| {
//!             let orders = orders_of(customer).await?;
//!             lock.checkpoint().await?; // `Lost`: stop, the lock is no longer ours
//!             let statement = statement_of(customer, &orders).await?; // a second event would make a second statement
//!             lock.commit([save(&statement)]).await?; // one transaction, applied only while the lock is ours
//!             Ok(())
//!         })
//!         .await // released on success and on error
//! }
//! ```
//!
//! The lease covers what is left of the [`Budget`], and a little more. A call waits for the lock for at most half of the
//! budget, so that the other half is left for the work: [`reserve`](Budget::reserve) sets how much is left.
//!
//! Each caller does the whole work. When the event is delivered twice, the statement is made twice. For work that must
//! not be done twice, such as a payment, use `once`.
//!
//! # What to call
//!
//! | for | call |
//! |---|---|
//! | one caller at a time | `locks.`[`with_lock`](LockClient::with_lock)`(key, &budget, work)`. With other settings, such as a lease: `locks.`[`acquire`](LockClient::acquire)`(key).within(&budget).await?.`[`run`](Lock::run)`(work)` |
//! | one try, without waiting | `locks.acquire(key).within(&budget).`[`try_once`](Acquire::try_once)`()`: [`Tried`] is `Granted` with the lock, or `Refused` with its holder |
//! | several keys, all of them or none | `locks.`[`acquire_all`](LockClient::acquire_all)`(keys).within(&budget)`: a [`LockSet`], with `run`, `checkpoint`, `keep_alive`, `commit` and `release` as a [`Lock`] has |
//! | at most three callers at a time | `locks.`[`semaphore`](LockClient::semaphore)`(name, 3).acquire().within(&budget)`: a [`Lock`] that knows its [`place`](Lock::place) |
//! | work that is done once for each key | `locks.once(key).payload(&event).within(&budget).run(work)`, with the feature `once`. Its result is stored, for 24 hours by default. Later calls return it. Work that crashed is done again, so a payment provider needs an idempotency key too |
//! | writes that apply only while the lock is ours | [`commit`](Lock::commit)`(writes)`, or [`commit_and_release`](Lock::commit_and_release). In a transaction of your own: [`condition_check`](Lock::condition_check) |
//! | a lease that ends before the work does | [`checkpoint`](Lock::checkpoint) between steps. Around a long step [`keep_alive`](Lock::keep_alive), which renews while the step runs |
//! | work that the next function or state continues | [`save`](Lock::save), and there `locks.`[`resume`](LockClient::resume)`(saved)` |
//! | a whole handler under a lock | `lambda::LockLayer`, with the feature `lambda` |
//! | operators: to look at locks, break and freeze them, make the table | `locks.`[`operator`](LockClient::operator)`()` |
//!
//! `with_lock`, `run` and `release` release the lock. A guard that is dropped releases nothing: its lease frees it.
//!
//! # Errors
//!
//! [`Error::kind`] says what to do. These four are met most:
//!
//! | kind | what to do |
//! |---|---|
//! | [`Held`](ErrorKind::Held) | retry later. [`Error::refusal`] has the holder, and `retry_after`: by then it has released or can be proven dead, or has renewed |
//! | [`Lost`](ErrorKind::Lost) | stop, and do not write |
//! | [`Unknown`](ErrorKind::Unknown) | there was no usable response. Retry the call, but a commit: ask [`resolve_commit`](Lock::resolve_commit) first |
//! | [`CutShort`](ErrorKind::CutShort) | the lease ended while the work ran, so the work was dropped: check what it left behind |
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
