//! The client: one per lock table, built once, shared by everything in the process.

mod builder;

pub use builder::{DEFAULT_REQUEST_TIMEOUT, LockClientBuilder};

use crate::engine::budget::Budget;
use crate::engine::error::Error;
use crate::engine::{Engine, table};
use crate::lock::acquire::{Acquire, AcquireRequest, Reclaim, TryAcquire};
use crate::lock::commit;
use crate::lock::guard::Lock;
use crate::lock::peek::{self, PeekedLock};
use crate::lock::release::{Release, ReleaseWorkflow};
use crate::lock::resume::Resume;
use crate::protocol::{LockKey, SavedLock};
use aws_sdk_dynamodb::types::TransactWriteItem;
use std::sync::Arc;

/// Locks in one DynamoDB table.
///
/// Cheap to clone; all clones share one state. Build one per process, outside of the handler, and
/// pass it to the handler.
///
/// ```no_run
/// # async fn example(config: aws_sdk_dynamodb::Config) -> Result<(), lambda_lock::Error> {
/// use lambda_lock::{Budget, LockClient};
/// use std::time::Duration;
///
/// let dynamodb = aws_sdk_dynamodb::Client::from_conf(config);
/// let locks = LockClient::builder(dynamodb, "locks").build()?;
///
/// let budget = Budget::lasting(Duration::from_secs(20));
/// let lock = locks.acquire("customer-7").within(&budget).await?;
/// // … the work …
/// lock.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockClient {
    pub(crate) engine: Arc<Engine>,
}

impl LockClient {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine: Arc::new(engine) }
    }

    /// Acquires a lock, runs the work, and releases the lock whether the work succeeded or failed.
    ///
    /// The lease covers the rest of the budget and its grace. A function that is killed at its deadline blocks others
    /// until its lease ends and [`max_clock_skew`](crate::LockClientBuilder::max_clock_skew) longer: with the
    /// defaults about 3 s and 5 % of its timeout, which is 4.6 s at a timeout of 30 s and 48 s at 15 minutes.
    ///
    /// ```no_run
    /// # use lambda_lock::{Budget, LockClient, Error};
    /// # async fn orders_of(_: &str) -> Result<Vec<String>, Error> { Ok(Vec::new()) }
    /// # async fn save_statement(_: &[String], token: u64) -> Result<u32, Error> { Ok(1) }
    /// # async fn example(locks: &LockClient, budget: &Budget) -> Result<u32, Error> {
    /// locks
    ///     .with_lock("customer-7", budget, async |lock| {
    ///         let orders = orders_of("customer-7").await?;
    ///         lock.checkpoint().await?; // renew between steps, in the open
    ///         save_statement(&orders, lock.fencing_token()).await // refused to a holder that comes late
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// The next caller does the work again, also for the same event. Work that must not be done twice is for `once`.
    ///
    /// The work ends with its lease: before each poll of it the lease is looked at, by both clocks, and once the lease
    /// has ended the work is dropped where it stands, since somebody else may be granted the lock from then on. What
    /// the work shares with others, such as a mutex, outlives it; what it has spawned goes on; and work that blocks its
    /// thread is stopped only where it next awaits. A [checkpoint](Lock::checkpoint) moves the end.
    /// [`without_cut`](crate::Acquire::without_cut) lets the work go on.
    ///
    /// # Errors
    /// Those of [`acquire`](LockClient::acquire), and whatever the work returns.
    /// [`CutShort`](crate::ErrorKind::CutShort) when the lease ended while the work ran. [`Lost`](crate::ErrorKind::Lost)
    /// when the work ended well and the release finds for certain that the lock had been lost meanwhile. Any other
    /// release that fails is logged as a warning and does not hide the result of the work: the lease frees the lock.
    ///
    /// # Requests and IAM actions
    /// Those of acquire and release: two `UpdateItem` when nobody else holds the lock.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work where it stands and leaves the lock taken until its lease
    /// ends. The same goes for a panic in the work.
    pub async fn with_lock<T, E, F>(&self, key: impl Into<LockKey>, budget: &Budget, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut Lock) -> Result<T, E>,
        E: From<Error>,
    {
        self.acquire(key).within(budget).run(work).await
    }

    /// Acquires a lock, waiting for it if somebody else holds it.
    ///
    /// Say [`within`](Acquire::within) which budget: it gives both the lease and how long to wait.
    /// Await the answer for the [`Lock`].
    ///
    /// # Errors
    /// [`Held`](crate::ErrorKind::Held) when the time to wait is over and somebody else still holds
    /// it; `Unknown`, `Unavailable`, `OutOfTime`, `InvalidRequest`, `InvalidRecord`, `Table`,
    /// `Denied` as [`ErrorKind`](crate::ErrorKind) says.
    ///
    /// # Requests
    /// One write when the lock is free, or its last holder is proven dead by the wall clock. Two
    /// writes when a row of another client is free or its holder proven dead by observation. While
    /// waiting, one consistent read (a fifth of a write's price) per poll: after 30 ms, then less
    /// and less often, at last about every 250 ms. One read more after an answer that was lost.
    ///
    /// # IAM actions
    /// `dynamodb:UpdateItem`, `dynamodb:GetItem` on the table.
    ///
    /// # Cancel safety
    /// Not cancel safe: when the future is dropped after its request was sent, the lock may be
    /// taken, and stays taken until its lease ends.
    pub fn acquire(&self, key: impl Into<LockKey>) -> Acquire<'_> {
        AcquireRequest::new(&self.engine, key.into())
    }

    /// Tries once to acquire a lock, and answers at once when somebody else holds it.
    ///
    /// A refused try is no error: see [`TryAcquired`](crate::TryAcquired). Needs a budget or a
    /// lease.
    ///
    /// # Errors
    /// As [`acquire`](LockClient::acquire), without `Held`.
    ///
    /// # Requests
    /// One write, granted or refused. One more write when the row is free but was written by another
    /// client, or when a carried observation proves its holder dead. One read more after an answer
    /// that was lost.
    ///
    /// # IAM actions
    /// `dynamodb:UpdateItem`, `dynamodb:GetItem` on the table.
    ///
    /// # Cancel safety
    /// As [`acquire`](LockClient::acquire).
    pub fn try_acquire(&self, key: impl Into<LockKey>) -> TryAcquire<'_> {
        AcquireRequest::new(&self.engine, key.into())
    }

    /// Goes on holding a lock that was saved with [`Lock::save`]: same grant, same
    /// fencing token, whole lease. Whoever else has a copy of the saved lock still holds it too.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when another grant has the lock or it was released;
    /// `Unknown`, `Unavailable`, `InvalidRequest`, `InvalidRecord`, `Table`, `Denied`.
    ///
    /// # Requests and IAM actions
    /// One write: `dynamodb:UpdateItem`. A second one when a copy changed the lease meanwhile; a read as with
    /// [`checkpoint`](Lock::checkpoint).
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lease renewed. The saved lock stays good.
    pub fn resume(&self, saved: SavedLock) -> Resume<'_> {
        Resume::new(&self.engine, saved)
    }

    /// Takes a lock that was saved as a **new** grant with a larger fencing token: every
    /// earlier copy of the saved lock is lost from then on. Works also after the lock was released or
    /// its lease ran out, as long as nobody else was granted it. Needs a budget or a lease. Owner and workflow
    /// stay those of the saved lock.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when somebody else was granted the lock, or its row is gone;
    /// otherwise as [`try_acquire`](LockClient::try_acquire).
    ///
    /// # Requests and IAM actions
    /// One write, or two when the lock was renewed since it was saved: `dynamodb:UpdateItem`,
    /// and `dynamodb:GetItem` after an answer that was lost.
    ///
    /// # Cancel safety
    /// As [`acquire`](LockClient::acquire).
    pub fn reclaim(&self, saved: SavedLock) -> Reclaim<'_> {
        AcquireRequest::reclaiming(&self.engine, saved)
    }

    /// [`Lock::condition_check`] for a lock that was saved: fences a transaction of whoever was
    /// handed the saved lock, such as a later state of a workflow, without asking for the lock first. Sends
    /// nothing.
    ///
    /// # Errors
    /// `InvalidRequest` when the saved lock is none of this client's.
    ///
    /// # IAM actions
    /// Your transaction needs `dynamodb:ConditionCheckItem` on the lock table.
    pub fn condition_check(&self, saved: &SavedLock) -> Result<TransactWriteItem, Error> {
        let settings = self.engine.settings();
        saved.check(settings)?;
        commit::fence(&self.engine, &saved.holding(self.engine.clock().now(), settings)?)
    }

    /// Releases a lock that was saved, without renewing it first.
    ///
    /// Harmless to repeat. See [`Release`] for errors, requests and cancel safety.
    pub fn release(&self, saved: SavedLock) -> Release {
        Release::of_saved(&self.engine, saved)
    }

    /// Gives back whatever this workflow holds on this key, for cleaning up after a workflow that
    /// has ended. Does nothing where another workflow, or nobody, holds it.
    ///
    /// The workflow's own running functions, if any, are not told: only fencing stops them. A workflow
    /// that was started again under its old name may hold the lock anew: see
    /// [`sparing_owners`](ReleaseWorkflow::sparing_owners).
    ///
    /// See [`Release`] for errors and cancel safety; requests: one consistent read, then one write
    /// for what is held (`dynamodb:GetItem`, `dynamodb:UpdateItem`).
    pub fn release_workflow(&self, key: impl Into<LockKey>, workflow: impl Into<String>) -> ReleaseWorkflow {
        ReleaseWorkflow::new(&self.engine, key.into(), workflow.into())
    }

    /// Reads who holds a lock, until when, and with which token; `None` when the lock has no row.
    ///
    /// What it says may be over when it arrives: never decide by it whether to write.
    ///
    /// # Errors
    /// `InvalidRecord` when the row is not a lock record; `Unknown`, `Unavailable`, `InvalidRequest`,
    /// `Table`, `Denied`.
    ///
    /// # Requests and IAM actions
    /// One consistent read: `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn peek(&self, key: impl Into<LockKey>) -> Result<Option<PeekedLock>, Error> {
        peek::peek(&self.engine, key.into()).await
    }

    /// Creates the lock table if it is missing: on demand, with this client's key attributes, and TTL
    /// switched on where a [`ttl_attribute`](LockClientBuilder::ttl_attribute) is set. Waits until it
    /// is active. A table that exists is [checked](LockClient::check_table).
    ///
    /// For tests, demos and tools. In production let your template own the table.
    ///
    /// # Errors
    /// `Table` when it exists and is no lock table, or is not active after a minute; `Denied`,
    /// `Unavailable`, `Unknown`.
    ///
    /// # Requests and IAM actions
    /// `dynamodb:CreateTable`, `dynamodb:DescribeTable`, and with TTL `dynamodb:UpdateTimeToLive`,
    /// `dynamodb:DescribeTimeToLive`.
    ///
    /// # Cancel safety
    /// Cancel safe: call it again.
    pub async fn create_table(&self) -> Result<(), Error> {
        table::create(&self.engine).await
    }

    /// Checks that the table exists, is active, and has the key attributes and TTL that this client
    /// expects. The error names everything that is wrong, not just the first thing.
    ///
    /// Worth a deployment test; too much for every cold start.
    ///
    /// # Errors
    /// `Table` with all findings; `Denied`, `Unavailable`, `Unknown`.
    ///
    /// # Requests and IAM actions
    /// `dynamodb:DescribeTable`, and with TTL `dynamodb:DescribeTimeToLive`.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn check_table(&self) -> Result<(), Error> {
        table::check(&self.engine).await
    }

    /// The name of the lock table.
    pub fn table(&self) -> &str {
        self.engine.table()
    }
}
