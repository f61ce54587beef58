//! The client of a lock table. Build it once. Everything in the process can share it.

mod builder;
mod operator;

pub use builder::LockClientBuilder;
pub use operator::Operator;

use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::error::Error;
use crate::lock::acquire::{Acquire, Reclaim};
use crate::lock::commit;
use crate::lock::guard::Lock;
use crate::lock::place::Semaphore;
use crate::lock::release::{Release, ReleaseWorkflow};
use crate::lock::resume::Resume;
use crate::lock::set::acquire::AcquireAll;
use crate::lock::set::release::ReleaseAll;
use crate::lock::set::resume::{ReclaimAll, ResumeAll, SavedLockSet};
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{LockKey, SavedLock};
use std::sync::Arc;

/// A client for the locks in one DynamoDB table.
///
/// It is cheap to clone, and all clones share one state. Build one client per process, outside of the handler, and pass
/// it to the handler.
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

    /// Returns a client of the same table whose keys all begin with this prefix, such as one for each tenant. It is
    /// cheap, shares the connections of this client, and sends no request.
    ///
    /// ```no_run
    /// # fn example(locks: &lambda_lock::LockClient) -> Result<(), lambda_lock::Error> {
    /// let blue = locks.prefixed("blue/")?;
    /// let request = blue.acquire("customer-7"); // the row's key is blue/customer-7
    /// # let _ = request;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Callers give keys without the prefix. Rows, guards, saved locks, errors and logs have the whole key. The key of
    /// idempotent work has the prefix before the namespace of `once`: `blue/once/order-42`. Calls with a saved lock
    /// whose key begins otherwise return `InvalidRequest`. A prefix of a client that has one is put behind it.
    ///
    /// A prefix keeps names apart. It stops no code that has permission for the whole table: see the page on tenants
    /// in the book.
    ///
    /// # Errors
    /// Returns `InvalidRequest` when the prefix does not end with a slash, when one of its parts is `once`, or when it
    /// leaves no room for a key: both together have at most 2,048 bytes.
    pub fn prefixed(&self, prefix: &str) -> Result<LockClient, Error> {
        Ok(Self::new(self.engine.prefixed(prefix)?))
    }

    /// The prefix of this client's keys. It is empty unless the client is [prefixed](LockClient::prefixed).
    pub fn key_prefix(&self) -> &str {
        self.engine.key_prefix.as_str()
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
    ///         lock.checkpoint().await?; // `Lost`: stop, the lock is no longer ours
    ///         save_statement(&orders, lock.fencing_token()).await // refused to a holder that comes late
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// The next caller does the work again, even for the same event. Use `once` for work that must not be done twice.
    ///
    /// The work is stopped when its lease ends, because another caller may be granted the lock from then on. Before
    /// each poll of the work, the lease is checked against both clocks. Once the lease has ended, the work is dropped
    /// at that point. What the work shares with other code, such as a mutex, stays. Tasks that the work has spawned
    /// continue. Work that blocks its thread is stopped only at its next await. A [checkpoint](Lock::checkpoint)
    /// extends the lease. [`run_without_cut`](Lock::run_without_cut) lets the work continue after the end of its
    /// lease.
    ///
    /// # Errors
    /// Returns the errors of [`acquire`](LockClient::acquire), and the error that the work returns. Returns
    /// [`CutShort`](crate::ErrorKind::CutShort) when the lease ended while the work ran. Returns
    /// [`Lost`](crate::ErrorKind::Lost) when the work succeeded, but the release proves that the lock was lost
    /// meanwhile. Any other failure of the release is logged as a warning and does not hide the result of the work,
    /// because the lease frees the lock.
    ///
    /// # Requests and IAM actions
    /// The requests are those of acquire and release: two `UpdateItem` when nobody else holds the lock.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work at that point and leaves the lock held until its lease ends. A panic in the
    /// work has the same effect.
    pub async fn with_lock<T, E, F>(&self, key: impl Into<LockKey>, budget: &Budget, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut Lock) -> Result<T, E>,
        E: From<Error>,
    {
        self.acquire(key).within(budget).await?.run(work).await
    }

    /// Acquires a lock. Waits for it if another caller holds it.
    ///
    /// Give it a budget with [`within`](Acquire::within). The lease and the waiting time follow from the budget. Await
    /// the request to get the [`Lock`].
    ///
    /// # Errors
    /// Returns [`Held`](crate::ErrorKind::Held) when the waiting time is over and another caller still holds the lock, or it is
    /// free and left to those in line. Returns `Unknown`, `Unavailable`, `OutOfTime`, `InvalidRequest`, `InvalidRecord`,
    /// `Table` or `Denied` as [`ErrorKind`](crate::ErrorKind) describes.
    ///
    /// # Requests
    /// It sends one write when the lock is free, or when the wall clock proves that its last holder is dead. It sends two writes
    /// when a row of another client is free, when an observation proves that its holder is dead, or when [additional
    /// attributes](Acquire::attribute) of an earlier grant have to be removed. While it waits, it sends one consistent read per
    /// poll, which costs a fifth of a write. The first poll comes after 30 ms. The pauses then grow to about 250 ms. When two
    /// looks in a row show the same grant, or after a second, it [waits in line](Acquire::in_turn): it sends one write for its
    /// ticket, and one if it gives up. It sends two writes when all who waited in line have given up. It sends one more read
    /// after a response was lost, and one more write when the first response shows that the wall clock was behind.
    ///
    /// # IAM actions
    /// It needs `dynamodb:UpdateItem` and `dynamodb:GetItem` on the table.
    ///
    /// # Cancel safety
    /// It is not cancel safe. If the future is dropped after its request was sent, the lock may be held, and then stays
    /// held until its lease ends.
    pub fn acquire(&self, key: impl Into<LockKey>) -> Acquire<'_> {
        Acquire::new(&self.engine, self.row_of(key))
    }

    /// Continues to hold a lock that was saved with [`Lock::save`]. The grant and the fencing token stay the same, and
    /// the lease starts again at its full length. Other processes that have a copy of the saved lock still hold it too.
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when another grant has the lock or the lock was released. Returns
    /// `Unknown`, `Unavailable`, `InvalidRequest`, `InvalidRecord`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one write: `dynamodb:UpdateItem`. It sends a second write when a copy changed the lease meanwhile. It
    /// sends a read in the same cases as [`checkpoint`](Lock::checkpoint).
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease may have been renewed. The saved lock stays valid.
    pub fn resume(&self, saved: SavedLock) -> Resume<'_> {
        Resume::new(&self.engine, saved)
    }

    /// Acquires a saved lock as a **new** grant with a larger fencing token. Every earlier copy of the saved lock is
    /// lost from then on. This also works after the lock was released or its lease ended, as long as nobody else was
    /// granted the lock. The call needs a budget or a lease. The owner and the workflow stay those of the saved lock.
    ///
    /// # Errors
    /// Returns [`Lost`](crate::ErrorKind::Lost) when another caller was granted the lock, or when its row is gone.
    /// Otherwise returns the errors of [`try_once`](Acquire::try_once).
    ///
    /// # Requests and IAM actions
    /// It sends one write, or two when the lock was renewed since it was saved: `dynamodb:UpdateItem`. After a response
    /// was lost, it also needs `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// The same holds as for [`acquire`](LockClient::acquire).
    pub fn reclaim(&self, saved: SavedLock) -> Reclaim<'_> {
        Reclaim::new(&self.engine, saved)
    }

    /// Returns the [`Lock::condition_check`] of a saved lock. It fences a transaction of a caller that received the
    /// saved lock, such as a later state of a workflow. The caller does not have to resume the lock first. Sends no
    /// request.
    ///
    /// # Errors
    /// Returns `InvalidRequest` when the saved lock does not belong to this client.
    ///
    /// # IAM actions
    /// Your transaction needs `dynamodb:ConditionCheckItem` on the lock table.
    pub fn condition_check(&self, saved: &SavedLock) -> Result<TransactWriteItem, Error> {
        self.engine.check_saved(saved)?;
        commit::fence(&self.engine, &saved.holding(self.engine.clock.now(), &self.engine.settings)?)
    }

    /// Releases a saved lock without renewing it first.
    ///
    /// The call is safe to repeat. See [`Release`] for errors, requests and cancel safety.
    pub fn release(&self, saved: SavedLock) -> Release {
        Release::of_saved(&self.engine, saved)
    }

    /// Releases the lock with this key if this workflow holds it. Use it to clean up after a workflow that has ended.
    /// It does nothing when another workflow holds the lock, or nobody does.
    ///
    /// Functions of the workflow that still run are not notified: only fencing stops them. A workflow that was started
    /// again under its old name may hold the lock again: see [`sparing_owners`](ReleaseWorkflow::sparing_owners).
    ///
    /// See [`Release`] for errors and cancel safety. The call sends one consistent read (`dynamodb:GetItem`), then one
    /// write if the lock is held (`dynamodb:UpdateItem`).
    pub fn release_workflow(&self, key: impl Into<LockKey>, workflow: impl Into<String>) -> ReleaseWorkflow {
        ReleaseWorkflow::of_workflow(&self.engine, self.row_of(key), workflow.into())
    }

    /// Acquires several locks together: all of them or none, by one request. They have one fencing token. Waits for all
    /// of them, and holds nothing meanwhile.
    ///
    /// ```no_run
    /// # use aws_sdk_dynamodb::types::TransactWriteItem;
    /// # async fn transfer(
    /// #     locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget, debit: TransactWriteItem, credit: TransactWriteItem,
    /// # ) -> Result<(), lambda_lock::Error> {
    /// let set = locks.acquire_all(["account-1", "account-2"]).within(budget).await?;
    /// // Both accounts, or none. After `Unknown`, read the accounts: the locks do not show which.
    /// set.commit_and_release([debit, credit]).await
    /// # }
    /// ```
    ///
    /// It is right for few keys, which are seldom busy. When others keep its keys busy, it can wait for very long,
    /// because all of them have to be free at once: [`in_order`](crate::AcquireAll::in_order) acquires them one after the
    /// other. The book's page on several locks compares both by figures.
    ///
    /// A call acquires 1 to 25 locks. Their rows keep payloads, which the guard does not show.
    ///
    /// # Errors
    /// Returns the errors of [`acquire`](LockClient::acquire). [`Error::refusals`] are the locks that others hold. Returns
    /// `InvalidRequest` for no key, more than 25, or one that was given twice, and where DynamoDB has no transactions, as
    /// in a global table with strong consistency.
    ///
    /// # Requests and IAM actions
    /// It sends one `TransactWriteItems` when all locks are free, which DynamoDB bills as two writes per lock. It needs
    /// `dynamodb:UpdateItem`. While it waits, it reads all rows by one `BatchGetItem` per look (`dynamodb:BatchGetItem`).
    ///
    /// # Cancel safety
    /// If the future is dropped, all locks may have been acquired, or none. They are then free when the lease ends.
    pub fn acquire_all<K: Into<LockKey>>(&self, keys: impl IntoIterator<Item = K>) -> AcquireAll<'_> {
        AcquireAll::new(&self.engine, self.rows_of(keys))
    }

    /// Continues to hold a [saved set](crate::LockSet::save), with the same grants and fencing tokens.
    ///
    /// # Errors
    /// Returns the errors of [`resume`](LockClient::resume). When one lock is lost, it releases the others and returns
    /// `Lost`. After any other error the saved set still represents the locks. Returns `InvalidRequest` for locks of several
    /// owners or workflows.
    ///
    /// # Requests and IAM actions
    /// It sends one write for each lock (`dynamodb:UpdateItem`), as [`checkpoint`](crate::LockSet::checkpoint) does.
    ///
    /// # Cancel safety
    /// It is cancel safe, because the saved set still represents the locks.
    pub fn resume_all(&self, saved: SavedLockSet) -> ResumeAll<'_> {
        ResumeAll::new(&self.engine, saved)
    }

    /// Releases the locks of a saved set, as [`release`](LockClient::release) does with one lock.
    ///
    /// # Errors, requests, IAM actions and cancel safety
    /// They are those of [`ReleaseAll`].
    pub fn release_all(&self, saved: SavedLockSet) -> ReleaseAll {
        ReleaseAll::of_saved(&self.engine, &saved)
    }

    /// Takes a saved set again as a new grant with a larger fencing token, as [`reclaim`](LockClient::reclaim) does with
    /// one lock. All of them are taken, or none.
    ///
    /// # Errors
    /// Returns the errors of [`reclaim`](LockClient::reclaim). `Lost` names the lock that is no longer that of the saved
    /// set.
    ///
    /// # Requests and IAM actions
    /// It sends one `TransactWriteItems` (`dynamodb:UpdateItem`), and a `BatchGetItem` (`dynamodb:BatchGetItem`) and
    /// another transaction when a row was written since, or has a token that is ahead of the clock.
    ///
    /// # Cancel safety
    /// If the future is dropped, all locks may have been taken, or none.
    pub fn reclaim_all(&self, saved: SavedLockSet) -> ReclaimAll<'_> {
        ReclaimAll::new(&self.engine, saved)
    }

    /// A semaphore: at most this many callers at once. Each of its places is an ordinary lock, with a lease and a fencing
    /// token: `name/0` to `name/{places - 1}`.
    ///
    /// ```no_run
    /// # async fn call(_: Option<usize>) -> Result<(), lambda_lock::Error> { Ok(()) }
    /// # async fn example(locks: &lambda_lock::LockClient, budget: &lambda_lock::Budget) -> Result<(), lambda_lock::Error> {
    /// let gateway = locks.semaphore("gateway", 5);
    /// gateway.acquire().within(budget).await?.run(async |lock| call(lock.place()).await).await
    /// # }
    /// ```
    ///
    /// The number of places is the caller's, and nothing stores it. A larger number counts at once. With a smaller one the
    /// callers that hold higher places end by themselves. To keep out callers that still know the larger one,
    /// [freeze](crate::operator::Operator::freeze) the places that are too many: their keys are `name/0`, `name/1` and so on.
    /// Waiting callers are not served in order. Sends no request.
    pub fn semaphore(&self, name: impl Into<LockKey>, places: u32) -> Semaphore<'_> {
        Semaphore::new(&self.engine, self.row_of(name), places)
    }

    fn rows_of<K: Into<LockKey>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<LockKey> {
        keys.into_iter().map(|key| self.row_of(key)).collect()
    }

    /// Returns the key as it is in the row.
    pub(crate) fn row_of(&self, key: impl Into<LockKey>) -> LockKey {
        self.engine.key_prefix.before(key.into())
    }
}
