//! What operators do with the locks of a table: look, break, freeze, thaw, and make the table.

use super::LockClient;
use crate::engine::error::Error;
use crate::engine::table;
use crate::lock::break_lock;
use crate::lock::freeze::{self, ThawOutcome};
use crate::lock::list::List;
use crate::lock::peek::{self, PeekedLock};
use crate::lock::release::ReleaseOutcome;
use lambda_lock_protocol::LockKey;

/// What operators do: they look at locks, break and freeze them, and check the table. See
/// [`LockClient::operator`]. An application that only holds locks needs none of it.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a> {
    pub(crate) locks: &'a LockClient,
}

impl LockClient {
    /// What operators do with the locks of this client: [peek](Operator::peek), [list](Operator::list),
    /// [break](Operator::break_lock), [freeze](Operator::freeze) and [thaw](Operator::thaw) them, and
    /// [create](Operator::create_table) and [check](Operator::check_table) the table. Sends no request.
    pub fn operator(&self) -> Operator<'_> {
        Operator { locks: self }
    }
}

impl Operator<'_> {
    /// Reads who holds a lock, until when, and with which token. Returns `None` when the lock has no row.
    ///
    /// The key is that of the row: of idempotent work it begins with `once/`. Work that has an outcome is no lock, and also
    /// returns `None`: see [`Once::status`](crate::once::Once::status).
    ///
    /// The result may be out of date when it arrives. Never use it to decide whether to write.
    ///
    /// # Errors
    /// Returns `InvalidRecord` when the row is not a lock record. Returns `Unknown`, `Unavailable`, `InvalidRequest`,
    /// `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one consistent read: `dynamodb:GetItem`.
    ///
    /// # Cancel safety
    /// It is cancel safe, because it changes nothing.
    pub async fn peek(self, key: impl Into<LockKey>) -> Result<Option<PeekedLock>, Error> {
        peek::peek(&self.locks.engine, self.locks.row_of(key)).await
    }

    /// Lists all locks in the table, page by page, for operators. It reads the whole table, so it is not for callers that
    /// want one lock: [`peek`](Operator::peek) reads that. A client with a [prefix](LockClient::prefixed) lists the keys
    /// that begin with it.
    ///
    /// # Errors, requests, IAM actions and cancel safety
    /// They are those of [`List::next`].
    pub fn list(self) -> List {
        List::new(&self.locks.engine)
    }

    /// Breaks a lock: releases it for its holder, because an operator decides so. `seen` is the lock as the operator saw it,
    /// and `reason` stays in the row for those who read it later. Returns [`AlreadyGone`](ReleaseOutcome::AlreadyGone) when
    /// the row no longer has the [version](crate::operator::PeekedLock::version) that was seen: the holder has renewed the lock, so it
    /// is alive, or another one has acquired it, or the row was deleted. Nothing is changed then.
    ///
    /// ```no_run
    /// # async fn example(locks: &lambda_lock::LockClient) -> Result<(), lambda_lock::Error> {
    /// use lambda_lock::ReleaseOutcome;
    ///
    /// let Some(lock) = locks.operator().peek("customer-7").await? else { return Ok(()) };
    /// // … an operator looks at it, and decides …
    /// match locks.operator().break_lock("customer-7", &lock, "its host is gone, ticket 4711").await? {
    ///     ReleaseOutcome::Released => println!("free"),
    ///     ReleaseOutcome::AlreadyGone => println!("its holder is alive: look again"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **A broken holder still runs.** It learns that it lost the lock at its next renewal, commit or release, and a Java or Go
    /// client at its next heartbeat. What it writes until then must be fenced. A lock whose holder is dead needs no break: the
    /// next acquire takes it over.
    ///
    /// The key is that of the row: of idempotent work it begins with `once/`. The next attempt may then begin.
    ///
    /// # Errors
    /// Returns [`Unknown`](crate::ErrorKind::Unknown) when no response came, or when the row has changed after a request without a
    /// response: this call may have broken the lock, and another caller may have acquired it since. So look again.
    /// Returns `Unavailable`, `InvalidRequest`, `Table` or `Denied`. A reason has 1 to 2,048 bytes.
    ///
    /// # Requests and IAM actions
    /// It sends one write (`dynamodb:UpdateItem`), and the same again when a response was lost.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not be broken. It is safe to repeat.
    pub async fn break_lock(
        self,
        key: impl Into<LockKey>,
        seen: &PeekedLock,
        reason: &str,
    ) -> Result<ReleaseOutcome, Error> {
        break_lock::break_lock(&self.locks.engine, self.locks.row_of(key), &seen.version, reason).await
    }

    /// Freezes a lock: until it is [thawed](Operator::thaw), nobody is granted it but its holder, who may finish. `reason`
    /// tells those who are refused why: [`Refusal::freeze_reason`](crate::Refusal::freeze_reason). To freeze a frozen lock again
    /// changes the reason.
    ///
    /// ```no_run
    /// # async fn example(locks: &lambda_lock::LockClient) -> Result<(), lambda_lock::Error> {
    /// locks.operator().freeze("nightly-job", "migration of the ledger, ticket 4711").await?;
    /// // … the present run ends, and no other begins …
    /// locks.operator().thaw("nightly-job").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// While a lock is frozen,
    ///
    /// * its holder renews, commits, saves, resumes and releases it as always, and with
    ///   [`reclaim_own`](crate::Acquire::reclaim_own) or [`reclaim`](LockClient::reclaim) it gets a new grant until it
    ///   releases the lock;
    /// * an acquire waits as behind a holder, and is then refused as [`Held`](crate::ErrorKind::Held), also when the lock is
    ///   free or its holder is dead. The lock and all others of a set are refused together. A frozen place of a semaphore is
    ///   not used.
    ///
    /// The lock needs no row yet. Idempotent work cannot be frozen.
    ///
    /// The Java and Go clients do not know frozen locks, and are granted them. An acquire of the Java client also ends the
    /// freeze. A freeze takes the [TTL](crate::LockClientBuilder::ttl_attribute) away, so that DynamoDB does not delete the row. It
    /// writes a text there, and is `InvalidRequest` where the row has no room for that: give a shorter reason.
    ///
    /// # Errors
    /// Returns [`Unknown`](crate::ErrorKind::Unknown) when a request had no response, whatever a later one says: the lock may be
    /// frozen, so repeat the call.
    /// Returns `InvalidRecord`, `Unavailable`, `InvalidRequest`, `Table` or `Denied`. A reason has 1 to 2,048 bytes.
    ///
    /// # Requests and IAM actions
    /// It sends one consistent read (`dynamodb:GetItem`) and one write (`dynamodb:UpdateItem`), and both again when another
    /// operator was faster.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not be frozen. It is safe to repeat.
    pub async fn freeze(self, key: impl Into<LockKey>, reason: &str) -> Result<(), Error> {
        freeze::freeze(&self.locks.engine, self.locks.row_of(key), None, reason).await.map(|_| ())
    }

    /// Freezes the lock as [`freeze`](Operator::freeze) does, unless another operator has frozen or thawed it since it was
    /// seen, or it was free and is held, or it had no row and has one. Returns whether it did. `seen` is what
    /// [`peek`](Operator::peek) returned. It may still be granted between the read and the write of this call: who holds a frozen
    /// lock is seen with another `peek`.
    ///
    /// # Errors
    /// Those of [`freeze`](Operator::freeze).
    pub async fn freeze_seen(
        self,
        key: impl Into<LockKey>,
        seen: Option<&PeekedLock>,
        reason: &str,
    ) -> Result<bool, Error> {
        freeze::freeze(&self.locks.engine, self.locks.row_of(key), Some(seen), reason).await
    }

    /// Thaws a [frozen](Operator::freeze) lock: callers are granted it again. No earlier freeze is applied after that, not
    /// even one whose response was lost, unless the lock has no row: then nothing is written.
    ///
    /// # Errors
    /// Returns [`Unknown`](crate::ErrorKind::Unknown) when a request had no response, whatever a later one says: the lock may be
    /// thawed, so repeat the call.
    /// Returns `InvalidRecord`, `Unavailable`, `InvalidRequest`, `Table` or `Denied`.
    ///
    /// # Requests and IAM actions
    /// It sends one consistent read (`dynamodb:GetItem`), and one write (`dynamodb:UpdateItem`) if the lock has a row. It
    /// sends both again when another operator was faster.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock may or may not be thawed. It is safe to repeat.
    pub async fn thaw(self, key: impl Into<LockKey>) -> Result<ThawOutcome, Error> {
        let thawed = freeze::thaw(&self.locks.engine, self.locks.row_of(key), None).await;
        Ok(thawed?.unwrap_or(ThawOutcome::NotFrozen))
    }

    /// Thaws the freeze that was seen, as [`thaw`](Operator::thaw) does. Returns `None`, and leaves the lock alone, if another
    /// operator has frozen or thawed it since. `seen` is what [`peek`](Operator::peek) returned.
    ///
    /// # Errors
    /// Those of [`thaw`](Operator::thaw).
    pub async fn thaw_seen(
        self,
        key: impl Into<LockKey>,
        seen: Option<&PeekedLock>,
    ) -> Result<Option<ThawOutcome>, Error> {
        freeze::thaw(&self.locks.engine, self.locks.row_of(key), Some(seen)).await
    }

    /// Creates the lock table if it is missing. The table is billed on demand and has this client's key attributes. TTL
    /// is switched on where a [`ttl_attribute`](crate::LockClientBuilder::ttl_attribute) is set. Waits until the table is
    /// active. [Checks](Operator::check_table) a table that already exists.
    ///
    /// This is for tests, demos and tools. In production, let your template own the table.
    ///
    /// # Errors
    /// Returns `Table` when the table exists and is not a lock table, or when it is not active after a minute. Returns
    /// `Denied`, `Unavailable` or `Unknown`.
    ///
    /// # Requests and IAM actions
    /// It needs `dynamodb:CreateTable`, `dynamodb:DescribeTable` and `dynamodb:DescribeTimeToLive`. With TTL it also
    /// needs `dynamodb:UpdateTimeToLive`.
    ///
    /// # Cancel safety
    /// It is cancel safe: call it again.
    pub async fn create_table(self) -> Result<(), Error> {
        table::create(&self.locks.engine).await
    }

    /// Checks that the table exists, is active, and has the key attributes and TTL that this client expects. The error
    /// names everything that is wrong, not just the first problem.
    ///
    /// A table in several Regions must have strong consistency, unless the client has
    /// [`one_home_region`](crate::LockClientBuilder::one_home_region). All its replicas and its witness must be active, and
    /// with strong consistency there is no TTL.
    ///
    /// Use it in a deployment test. Do not use it in every cold start, because it takes too long there.
    ///
    /// # Errors
    /// Returns `Table` with all problems. Returns `Denied`, `Unavailable` or `Unknown`.
    ///
    /// # Requests and IAM actions
    /// It needs `dynamodb:DescribeTable`, and `dynamodb:DescribeTimeToLive` where the table can have a TTL.
    ///
    /// # Cancel safety
    /// It is cancel safe, because it changes nothing.
    pub async fn check_table(self) -> Result<(), Error> {
        table::check(&self.locks.engine).await
    }
}
