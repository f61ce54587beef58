#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
//! The decisions of the lock `lambda-lock`, without a clock, a connection or an SDK.
//!
//! Who wants a lock uses `lambda-lock`, which is built on this crate. Who writes another driver of the same lock, on another
//! SDK or in a simulation, finds here what to send and what an answer means. Who reads rows of the table finds every
//! attribute below.
//!
//! **Stability.** The item and its attributes are stable, and so are the types that `lambda-lock` re-exports. All other
//! items here may change in any release; `lambda-lock` needs exactly its own version of this crate.
//!
//! Each operation is an `async` function over a [`Port`], which reads the clocks, sends requests and lets time pass.
//! `lambda-lock` implements the port on the SDK. A host that cannot await, such as that of the WebAssembly component, drives
//! an operation by [`Steps`].
//!
//! # The item
//!
//! One DynamoDB item per lock key, readable and usable by the Java client
//! `amazon-dynamodb-lock-client` and the Go client `cirello.io/dynamolock`.
//!
//! | attribute | type | written by | meaning |
//! |---|---|---|---|
//! | `key` (name configurable) | S | all | lock key, 1–2048 bytes |
//! | sort key (optional, name configurable) | S | all | 1–1024 bytes |
//! | `ownerName` | S | all | who holds, or last held, the lock |
//! | `leaseDuration` | S | all | decimal milliseconds (`"20000"`) or a Go duration (`"20s"`); both are read, one [`Dialect`] is written |
//! | `recordVersionNumber` | S | all | changes with every write; ours is `ll1-{grant}-{stamp}` |
//! | `isReleased` | S `"1"` | all | present on a released row, absent while held |
//! | `data` | B | all | optional payload; stays when the next holder gives none |
//! | `fencingToken` | N | us | strictly increasing per key over all of our grants |
//! | `leaseEndsAt` | N | us | epoch milliseconds by the writer's wall clock |
//! | `workflow` | S | us | present only while a workflow holds the lock |
//! | `breakReason` | S | us | why the lock was last broken; stays until it is broken again |
//! | `brokenVersion` | S | us | the version that this break left: while the row has it, nobody has acquired the lock since |
//! | `freezeReason` | S | us | why the lock is frozen; present only while it is |
//! | `freezeChangedAt` | N | us | when it was last frozen or thawed, in epoch milliseconds; grows with each of them |
//! | `lastTicket`, `servedTicket` | N | us | the last ticket that was given to a caller who waits in line, and the last one that was served; absent where nobody ever waited in line |
//! | `lastSleeper` | N | us | the last ticket of a caller that sleeps between its calls; absent where nobody ever did |
//! | `leftTickets` | NS | us | the tickets whose callers have given up, a hundred at most; absent where nobody did |
//! | additional attributes, up to 20 | S, N | all | what the caller of a grant put there for readers; they stay until the next grant |
//! | `attributeNames` | S | us | the names of those that we wrote, sorted and with commas between them; absent where there are none |
//! | TTL attribute (opt-in, name configurable) | N | us | epoch seconds; housekeeping of idle rows, never part of a decision. A text while the lock is frozen, so that DynamoDB does not delete the row. `expiresAt` is removed by clients that have another one or none |
//! | `ttlAttribute` | S | us | the name of the TTL attribute, where it is not `expiresAt`; clients that have another one or none neither hold nor freeze the row |
//!
//! The repository's `docs/other-clients.md` has a table of what the Java and Go clients do with these attributes, and of
//! what becomes of them under a peer's grant. It is tested with the real libraries.
//!
//! The version serves three purposes:
//!
//! * It shows *who wrote last*. Under a peer's version `fencingToken`, `leaseEndsAt` and `workflow` may be stale, and
//!   are ignored.
//! * It *names the grant*, so that a client recognises its own write when the response was lost.
//! * It *orders the writes of a grant*, so that a delayed copy of an older renewal is refused.
//!
//! # Where to look
//!
//! | file | rule |
//! |---|---|
//! | `acquire` | Claim, Take, recognition of our own write, waiting |
//! | `renew` | Renew, and what a refused Renew means |
//! | `release` | Release of a lock, and the release of what a workflow holds |
//! | `operator` | Break: releasing a lock for its holder. Freeze and Thaw: granting it to nobody else for a while. Reset: allowing work again that failed for good |
//! | `peek`, `read` | Peek: reading rows |
//! | `commit` | Commit, and Commit and release: the caller's writes and the lock's in one transaction |
//! | [`once`], `work` | idempotent work: a lock and the outcome of its work in one item |
//! | `holding` | how long a holder may rely on its lease |
//! | `observation` | when a holder is dead |
//! | `line`, `acquire/waiter` | waiting in line: tickets, whose turn it is, and when to look |
//! | `call` | when the next request is sent, and what a failure may say once a write had no response |
//! | `backoff` | how long to pause: after a fault, behind a holder |
//! | `attributes` | additional attributes, and how the next grant removes them |
//! | `expression` | the requests as DynamoDB expressions |
//! | `port`, `steps` | what an operation needs from outside, and how to run an operation step by step |
//! | `reply` | what a response means |

#![allow(missing_docs, reason = "docs that only repeat a name are left out")]

mod acquire;
mod attributes;
mod backoff;
mod call;
mod clock_bounds;
mod commit;
mod expression;
mod failure;
mod holding;
mod instants;
mod invalid;
mod key;
mod lease;
mod line;
mod observation;
pub mod once;
mod operator;
mod peek;
mod port;
mod read;
mod record;
mod release;
mod renew;
mod reply;
mod request;
mod saved;
pub mod schema;
mod settings;
mod steps;
mod value;
mod version;
mod work;

pub use acquire::{
    AcquireAllOptions, AcquireOptions, Acquired, AcquiredAll, AcquiredPlace, Blocked, FailedAcquire, HolderSeen,
    Places, Queueing, Reclaim, WantedLock, WantedPlace, acquire, acquire_all, acquire_one_of,
};
pub use attributes::{Attribute, AttributesChange, EarlierNames, MAX_ATTRIBUTES};
pub use clock_bounds::ClockBounds;
#[doc(hidden)]
pub use clock_bounds::DEFAULT_SKEW;
pub use commit::{Ending, FailedCommit, commit};
pub use expression::{Expression, Returns};
pub use failure::{Failure, Operation};
#[doc(hidden)]
pub use failure::{Locks, Named};
pub use holding::{Holding, LeaseValidity, PendingCommit};
pub use instants::{Instants, from_epoch_millis, millis_rounded_up};
pub use invalid::Invalid;
pub use key::{LockKey, WAKE};
pub use lease::{Dialect, Lease, MAX_LEASE};
pub use line::Line;
pub use observation::Observation;
pub use once::peek_once;
pub use operator::{Broken, WorkReset, break_lock, freeze, reset, thaw};
pub use peek::{peek, peek_all};
pub use port::{Now, Port, ServerTime, WallClock};
#[doc(hidden)]
pub use record::quoted;
pub use record::{InvalidRecord, Record, is_settled};
pub use release::{ReleaseOptions, Released, release, release_workflow};
pub use renew::renew;
pub use reply::{FailedWrite, Fault, Refusal, Rejection, Reply, RowRead, Transacted, Written};
pub use request::{
    Action, DataChange, FrozenRow, LineRule, NewGrant, NextToken, OnceClaim, Request, Scope, StoredOutcome,
    TransactionId,
};
pub use saved::SavedLock;
pub use schema::{Schema, Ttl};
pub use settings::{MAX_ITEM_BYTES, MAX_NAME_BYTES, Settings};
pub use steps::{Answer, Driven, Sent, Step, Steps};
pub use value::{Item, Value};
pub use version::{Grant, OURS, Stamp, Version};
pub use work::OnceRecord;
