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
//! # fn put_of(_: &str) -> TransactWriteItem { TransactWriteItem::builder().build() }
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
//!             lock.checkpoint().await?; // renews; `Lost`: stop, the lock is no longer ours
//!             let statement = statement_of(customer, &orders).await?; // a second event would make a second statement
//!             lock.commit([put_of(&statement)]).await?; // a `TransactWriteItem`, applied only while the lock is ours
//!             Ok(())
//!         })
//!         .await // released on success and on error
//! }
//! ```
//!
//! The lease covers what is left of the [`Budget`], and a little more. A call waits for the lock for at most half of the
//! budget, so that the other half is left for the work: [`reserve`](Budget::reserve) says how much of it no call waits for.
//! A caller that crashes keeps the lock until its lease has ended. For work of many minutes, set a
//! [`lease`](Acquire::lease) of a minute and renew it.
//!
//! The work may return any error that is `From<Error>`. When the work has succeeded and only the release fails, the call
//! succeeds, and the lease frees the lock.
//!
//! Each caller does the whole work. When the event is delivered twice, the statement is made twice. For work that must
//! not be done twice, such as a payment, use `once`.
//!
//! ## A long step, and a commit whose outcome must be known
//!
//! ```no_run
//! use lambda_lock::{Budget, CommitOutcome, Error, LockClient, Tried};
//! use std::time::Duration;
//!
//! # use aws_sdk_dynamodb::types::TransactWriteItem;
//! # async fn export() -> Result<String, Error> { Ok(String::new()) }
//! # fn record_of(_: &str) -> TransactWriteItem { TransactWriteItem::builder().build() }
//! async fn nightly(locks: &LockClient, budget: &Budget) -> Result<(), Error> {
//!     let lease = Duration::from_secs(60);
//!     let lock = match locks.acquire("nightly").within(budget).lease(lease).try_once().await? {
//!         Tried::Granted(lock) => lock,
//!         Tried::Refused(refusal) => {
//!             println!("{} has it, retry in at most {:?}", refusal.holder, refusal.retry_after);
//!             return Ok(());
//!         }
//!     };
//!     // The work gets a `&mut Lock`.
//!     lock.run(async |lock| {
//!         // Renews while `export` runs, and drops it when the lock is lost. The second `?` is for the error of `export`.
//!         let file = lock.keep_alive(export()).await??;
//!         match lock.commit([record_of(&file)]).await {
//!             // No usable response: asks the row what became of it, while this guard still knows.
//!             Err(error) if error.is_unknown() => match lock.resolve_commit().await? {
//!                 CommitOutcome::Applied => Ok(()),
//!                 _ => Err(error),
//!             },
//!             committed => committed,
//!         }
//!     })
//!     .await
//! }
//! ```
//!
//! ## Work that is done once
//!
//! ```no_run
//! # #[cfg(feature = "once")] mod example {
//! # use lambda_lock::{Budget, Error, LockClient};
//! # use std::time::Duration;
//! # #[derive(serde::Serialize)] struct Order { id: String }
//! # #[derive(serde::Serialize, serde::Deserialize)] enum Charged { Paid, Declined }
//! # async fn charge(_: &Order, _: &str) -> Result<Charged, Error> { Ok(Charged::Paid) }
//! async fn charge_once(order: &Order, locks: &LockClient, budget: &Budget) -> Result<Charged, Error> {
//!     let once = locks.once(order.id.as_str()).payload(order).keep_for(Duration::from_secs(14 * 86_400)).within(budget);
//!     // `Ok` is stored, and later calls for this order get it. `Err` is not: the next call tries again. So a card that is
//!     // declined is `Ok`. A crash after the charge does it again: the provider has to know the order by its id.
//!     Ok(once.run(async |_attempt| charge(order, &order.id).await).await?.into_result())
//! }
//! # }
//! ```
//!
//! A second call waits while the first one works, and then gets its result, or `Held`.
//!
//! # What to call
//!
//! | for | call |
//! |---|---|
//! | one caller at a time | `locks.`[`with_lock`](LockClient::with_lock)`(key, &budget, work)`. With other settings, such as a [lease](Acquire::lease): `locks.`[`acquire`](LockClient::acquire)`(key).within(&budget).await?.`[`run`](Lock::run)`(work)` |
//! | one try, without waiting | `locks.acquire(key).within(&budget).`[`try_once`](Acquire::try_once)`().await?`: [`Tried`] is `Granted` with the lock, or `Refused` with its holder |
//! | a call that waits two seconds at most | `.within(&budget.reserve(rest))`, where `rest` is two seconds less than what [remains](Budget::remaining) |
//! | several keys, all of them or none | `locks.`[`acquire_all`](LockClient::acquire_all)`(keys).within(&budget).await?`: a [`LockSet`], with `run`, `checkpoint`, `keep_alive`, `commit`, `resolve_commit` and `release` as a [`Lock`] has. Callers with the same keys in another order do not block each other for ever |
//! | at most three callers at a time | `locks.`[`semaphore`](LockClient::semaphore)`(name, 3).acquire().within(&budget).await?`: a [`Lock`] that knows its [`place`](Lock::place). Where all are taken the call is `Held`, and `retry_after` is that of the place that can be had first |
//! | work that is done once for each key | `locks.once(key).payload(&event).within(&budget).run(work)`, with the feature `once`. Its result is stored, for 24 hours by default. Later calls return it |
//! | writes that apply only while the lock is ours | [`commit`](Lock::commit)`(writes)`, or [`commit_and_release`](Lock::commit_and_release): as many as fit into a transaction beside the locks. In a transaction of your own: [`condition_check`](Lock::condition_check) |
//! | late writes to other databases | the [`fencing_token`](Lock::fencing_token), which the database has to compare |
//! | a lease that ends before the work does | [`checkpoint`](Lock::checkpoint) between steps. Around a long step [`keep_alive`](Lock::keep_alive), which renews in the same task while the step is polled |
//! | work that the next function or state continues | [`save`](Lock::save), and there `locks.`[`resume`](LockClient::resume)`(saved)` |
//! | a whole handler under a lock | `lambda::LockLayer`, with the feature `lambda` |
//! | operators: to look at locks, break and freeze them, make the table | `locks.`[`operator`](LockClient::operator)`()` |
//!
//! `with_lock`, `run` and `release` release the lock. A guard that is dropped, also by a `?` or a timeout, releases nothing: its
//! lease frees it.
//!
//! # Errors
//!
//! [`Error::kind`] says what to do. These five are met most:
//!
//! | kind | what to do |
//! |---|---|
//! | [`Held`](ErrorKind::Held) | retry later. [`Error::refusal`] has the holder, and `retry_after`: the longest time until a holder that died can be replaced. One that lives may have renewed by then |
//! | [`Lost`](ErrorKind::Lost) | stop, and do not write |
//! | [`Unknown`](ErrorKind::Unknown) | it may or may not have happened, because there was no usable response. Repeat the call that returned it. Not a commit: ask [`resolve_commit`](Lock::resolve_commit) first |
//! | [`Cancelled`](ErrorKind::Cancelled) | a condition of your own writes refused the commit, so none of them was applied. The lock is still ours |
//! | [`CutShort`](ErrorKind::CutShort) | the lease ended while the work ran, so its future was dropped where it was: check what it left behind |
//!
//! # The table
//!
//! One item per key, in a table whose partition key is a string attribute called `key` (or as
//! configured). The crate [`lambda_lock_protocol`] describes every attribute and who may use it; the Java client
//! `amazon-dynamodb-lock-client` and the Go client `cirello.io/dynamolock` can share the table. A function that locks and
//! releases needs the actions `dynamodb:UpdateItem` and `dynamodb:GetItem` on it. Sets and semaphores need
//! `dynamodb:BatchGetItem` too, and a commit the actions of its writes on their tables. Every method says its requests and its
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
    Attribute, DataChange, Dialect, FailedWrite, Instants, LockKey, MAX_LEASE, MAX_NAME_BYTES, Observation, SavedLock,
};

pub use crate::{
    client::{LockClient, LockClientBuilder},
    engine::budget::Budget,
    engine::clock::{Clock, Sleep},
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
