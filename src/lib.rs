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
//!             lock.checkpoint().await?; // renews the lease between steps
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
//! # What is promised
//!
//! * **P1 Fencing.** Every grant of a key carries a token greater than every earlier grant's. This needs no assumption on
//!   clocks where rows are never deleted and never written by other clients. Otherwise it holds as long as each grant
//!   reads its clock later than the grant before it was applied, by more than clocks differ. A grant that did not, or a
//!   late copy in the place of a deleted row, leaves a smaller token, from which later ones count on. A resource that
//!   refuses smaller tokens, or a write [fenced in the same transaction](Lock::commit), never applies an older holder's
//!   effect after a newer holder's.
//! * **P2 Exclusion, while clocks behave.** At any instant, at most one grant's guards report that the lock is still
//!   theirs. Work that a guard runs ([`with_lock`](LockClient::with_lock), [`keep_alive`](Lock::keep_alive)) is polled
//!   only while its guard does. This assumes that clock *rates* differ by no more than
//!   [`clock_drift`](LockClientBuilder::clock_drift) (5 %), wall clocks by no more than
//!   [`max_clock_skew`](LockClientBuilder::max_clock_skew) (2 s), and that at least one clock of the holder keeps its
//!   rate.
//! * **P3 No false loss, no self-block, no lasting ghost.** A lock that is still ours is never reported lost. A write of
//!   the same call is never mistaken for another holder's. An abandoned attempt blocks others no longer than a dead
//!   holder with its lease.
//! * **P4 Bounded takeover.** If a live contender waits, a dead lock is granted again within
//!   `lease × (1 + drift)`, one poll and one request. Where the wall clock may be used, it is granted again
//!   `max_clock_skew` after its lease ended. Polls are at most 250 ms apart. They are up to 2 s apart only for a
//!   contender that has found several holders in turn, and shares the polling with them.
//! * **P5 Unknown is reported.** An operation whose outcome is unknown reports [`Unknown`](ErrorKind::Unknown), never
//!   "lost", "released" or "not acquired". There is one exception, where the network delivers a request twice. The late
//!   copy of a refused Claim can still be applied if the row was freed meanwhile by a release that was in flight then, or
//!   that may have been in flight as far as clocks show. Nobody holds that grant, and it ends as a dead holder's does. The same is true of the late copy
//!   of a [cancelled transaction](Lock::commit), or of a transaction that was refused while the row was not a lock
//!   record, once somebody has repaired the row.
//!
//! # What is not promised
//!
//! * A holder that is paused between its last check and its effect can act late. Only fencing at the resource prevents
//!   that.
//! * With eventually consistent DynamoDB global tables, two Regions can both acquire a lock. Give each lock one home
//!   Region.
//! * To delete rows (by hand, by TTL, with [`delete_row`](Release::delete_row)) weakens P1 to its clock clause.
//! * An effect outside of DynamoDB cannot be part of a transaction with the lock.
//! * Tokens are not comparable with grants made by Java or Go clients, which have none.
//!
//! # The table
//!
//! One item per key, in a table whose partition key is a string attribute called `key` (or as
//! configured). [`protocol`] describes every attribute and who may use it; the Java client
//! `amazon-dynamodb-lock-client` and the Go client `cirello.io/dynamolock` can share the table.
//!
//! | method | requests | IAM actions |
//! |---|---|---|
//! | [`acquire`](LockClient::acquire), [`try_acquire`](LockClient::try_acquire) | 1 write | `UpdateItem`, `GetItem` |
//! | [`checkpoint`](Lock::checkpoint), [`resume`](LockClient::resume) | 1 write | `UpdateItem` |
//! | [`release`](Lock::release) | 1 write | `UpdateItem` (`DeleteItem` to delete the row) |
//! | [`commit`](Lock::commit), [`commit_and_release`](Lock::commit_and_release) | 1 transaction | `UpdateItem`, and those of the caller's writes |
//! | [`condition_check`](Lock::condition_check) | none by itself | `ConditionCheckItem` |
//! | `once` (feature of that name) | first call 2 writes, or 1 and a transaction; later calls 1 | `UpdateItem`, `GetItem` |
//! | takeover of a dead holder | 1 write by wall clock, 2 by observation beside the polls | `UpdateItem`, `GetItem` |
//! | waiting | 1 consistent read per poll: 30 ms after the last one, then up to 250 ms, less often among many | `GetItem` |
//! | [`reclaim`](LockClient::reclaim) | 1 write, 2 after a renewal elsewhere | `UpdateItem`, `GetItem` |
//! | [`peek`](LockClient::peek) | 1 consistent read | `GetItem` |
//! | [`release_workflow`](LockClient::release_workflow) | 1 consistent read, 1 write | `GetItem`, `UpdateItem` |
//!
//! # Features
//!
//! | feature | default | brings |
//! |---|---|---|
//! | `dynamodb` | yes | the lock on `aws-sdk-dynamodb`; TLS and async runtime stay your choice |
//! | `lambda` | | [`lambda`]: a [`Budget`] from an invocation's context, a tower layer around a whole handler, errors by name |
//! | `once` | | idempotent work: lock and result in one item, done once for each key |
//! | none | | [`protocol`] alone, without the SDK |

// The storeys of the crate, from top to bottom. Imports run down only, which `.ci/layers.py` checks.
//
// | module | what |
// |---|---|
// | `lambda`, `once` | features on top |
// | `client` | the client and its builder: what users meet first |
// | `lock` | the guard of a held lock, and one file for each operation |
// | `engine` | runs an operation: deadline, clocks, requests to DynamoDB, the table |
// | `protocol` | the decisions: no clock, no SDK |

pub mod protocol;

#[cfg(feature = "dynamodb")]
mod client;
#[cfg(feature = "dynamodb")]
mod engine;
#[cfg(feature = "lambda")]
#[cfg_attr(docsrs, doc(cfg(feature = "lambda")))]
pub mod lambda;
#[cfg(feature = "dynamodb")]
mod lock;
#[cfg(feature = "once")]
#[cfg_attr(docsrs, doc(cfg(feature = "once")))]
pub mod once;

pub use protocol::{Dialect, FailedWrite, Instants, LockKey, Observation, SavedLock};

#[cfg(feature = "dynamodb")]
pub use crate::{
    client::{DEFAULT_REQUEST_TIMEOUT, LockClient, LockClientBuilder},
    engine::budget::{Budget, DEFAULT_GRACE},
    engine::clock::{Clock, SharedClock, Sleep},
    engine::error::{Error, ErrorKind, Held},
    lock::acquire::{
        Acquire, AcquireRequest, NewHolder, Reclaim, Reclaiming, TryAcquire, TryAcquired, Trying, Waiting,
    },
    lock::commit::{Commit, CommitAndRelease, CommitOutcome},
    lock::guard::Lock,
    lock::peek::PeekedLock,
    lock::release::{Release, ReleaseOutcome, ReleaseWorkflow},
    lock::renew::Renew,
    lock::resume::Resume,
};

#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../docs/choose.md")]
struct ChooseExamples;

#[cfg(all(doctest, feature = "lambda", feature = "once"))]
#[doc = include_str!("../docs/charge-once.md")]
struct ChargeOnceExamples;

#[cfg(all(doctest, feature = "lambda"))]
#[doc = include_str!("../docs/errors.md")]
struct ErrorsExamples;

#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../docs/fencing.md")]
struct FencingExamples;

#[cfg(all(doctest, feature = "lambda"))]
#[doc = include_str!("../docs/rust.md")]
struct RustExamples;
