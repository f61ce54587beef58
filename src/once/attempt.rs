//! An attempt: a held lock whose work ends with an outcome that is stored.

use crate::engine::error::Error;
use crate::lock::commit::{self, Commit};
use crate::lock::guard::Lock;
use crate::lock::release::ReleaseOutcome;
use crate::protocol::{Invalid, OnceRecord, StoredOutcome, from_epoch_millis};
use aws_sdk_dynamodb::types::TransactWriteItem;
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// The one attempt that is to do an idempotent work now.
///
/// It holds a [`Lock`], with all that can be done with one between the steps of the work: checkpoints,
/// commits, fences. What the steps need most has methods here, the rest is reached by [`lock`](Attempt::lock) and
/// [`lock_mut`](Attempt::lock_mut). It ends by storing an outcome, or by giving the work back for another attempt.
#[derive(Debug)]
#[must_use = "an attempt that is dropped keeps others waiting until its lease ends: complete it, fail it, or give it back"]
pub struct Attempt {
    lock: Lock,
    number: u64,
    first_seen: Option<SystemTime>,
    /// What is to be stored if the work ends with an error.
    failure: Option<String>,
}

impl Attempt {
    pub(super) fn new(lock: Lock, record: Option<OnceRecord>) -> Self {
        let (number, first_seen) = record.map_or((1, None), |record| (record.attempts, Some(record.first_seen)));
        Self { lock, number, first_seen: first_seen.and_then(from_epoch_millis), failure: None }
    }

    /// Which attempt at this work it is, counted from 1. More than 1: an earlier one failed, crashed, or
    /// was too slow, and may have done a part of the work.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When the work was first asked for, by the wall clock of whoever asked.
    pub fn first_seen_at(&self) -> Option<SystemTime> {
        self.first_seen
    }

    /// The lock that the attempt holds.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The lock that the attempt holds, to be renewed or kept alive.
    pub fn lock_mut(&mut self) -> &mut Lock {
        &mut self.lock
    }

    /// [`Lock::fencing_token`] of this attempt: larger than that of every earlier one. It is no idempotency key, since
    /// each attempt has another one.
    pub fn fencing_token(&self) -> u64 {
        self.lock.fencing_token()
    }

    /// [`Lock::remaining`]: what is left of the lease.
    pub fn remaining(&self) -> Duration {
        self.lock.remaining()
    }

    /// [`Lock::checkpoint`]: renews the lease between two steps of the work. Errors, requests and cancel safety are the
    /// same.
    pub async fn checkpoint(&mut self) -> Result<(), Error> {
        self.lock.checkpoint().await
    }

    /// [`Lock::commit`]: applies a step's writes in one transaction, while no other attempt took over. Errors, requests
    /// and cancel safety are the same.
    pub fn commit(&mut self, writes: impl IntoIterator<Item = TransactWriteItem>) -> Commit<'_> {
        self.lock.commit(writes)
    }

    /// Stores the result: later calls get it. The attempt is over from here on.
    ///
    /// # Errors
    /// `Lost`: another attempt took over, its outcome counts. `Unknown`: ask for the work again, it
    /// answers the result or tries again. `InvalidRequest`: the result is no JSON, or too large;
    /// `Unavailable`, `InvalidRecord`, `Table`, `Denied`. Unless it is lost, the attempt is then given
    /// back as well as can be.
    ///
    /// # Requests and IAM actions
    /// One write (`dynamodb:UpdateItem`); one more after a lost answer or an error.
    ///
    /// # Cancel safety
    /// When the future is dropped, the result may or may not be stored: ask for the work again.
    pub async fn complete<T: Serialize + ?Sized>(self, result: &T) -> Result<(), Error> {
        self.complete_with(result, Vec::new()).await
    }

    /// Stores the result, and applies these writes, in one transaction: all of it while no other attempt
    /// took over, or nothing. The attempt is over from here on.
    ///
    /// # Errors
    /// As [`complete`](Attempt::complete), and `Cancelled` when one of the writes was refused: nothing
    /// was applied or stored, and the attempt was given back.
    ///
    /// # Requests and IAM actions
    /// One `TransactWriteItems`: `dynamodb:UpdateItem`, and the actions of the writes. Without writes as
    /// [`complete`](Attempt::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Attempt::complete).
    pub async fn complete_with<T: Serialize + ?Sized>(
        self,
        result: &T,
        writes: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<(), Error> {
        let outcome = json(result).map(StoredOutcome::Done);
        commit::settle(self.lock, outcome, writes.into_iter().collect()).await
    }

    /// Stores a failure: later calls get [`FailedBefore`](crate::ErrorKind::FailedBefore), and the work
    /// is not tried again. The attempt is over from here on.
    ///
    /// # Errors, requests, IAM actions, cancel safety
    /// Those of [`complete`](Attempt::complete).
    pub async fn fail<F: Serialize + ?Sized>(self, failure: &F) -> Result<(), Error> {
        let outcome = json(failure).map(StoredOutcome::Failed);
        commit::settle(self.lock, outcome, Vec::new()).await
    }

    /// Within [`run`](super::Once::run): when the work now returns an error, this failure is stored, and
    /// the work is not tried again. Sends nothing.
    ///
    /// # Errors
    /// `InvalidRequest`: the failure cannot be written as JSON.
    pub fn fail_for_good<F: Serialize + ?Sized>(&mut self, failure: &F) -> Result<(), Error> {
        self.failure = Some(json(failure)?);
        Ok(())
    }

    /// Gives the work back, for another attempt to do it.
    ///
    /// # Errors, requests, IAM actions, cancel safety
    /// Those of [`Lock::release`].
    pub async fn give_back(self) -> Result<ReleaseOutcome, Error> {
        self.lock.release().await
    }

    /// The lease ended while the work ran. Somebody else may be at it by now: the record stays as it is.
    pub(super) fn cut_short(self) -> Error {
        self.lock.abandon();
        Error::work_cut_short(self.lock.key())
    }

    /// The work returned an error, which the caller will hear of: here failures are only logged.
    pub(super) async fn failed(self) {
        let key = self.lock.key().clone();
        let Some(failure) = self.failure else { return self.lock.finish().await };
        if let Err(error) = commit::settle(self.lock, Ok(StoredOutcome::Failed(failure)), Vec::new()).await {
            tracing::warn!(%key, %error, "the failure of an idempotent work was not stored; it may be tried again");
        }
    }
}

fn json<T: Serialize + ?Sized>(outcome: &T) -> Result<String, Invalid> {
    serde_json::to_string(outcome)
        .map_err(|error| Invalid::new(format!("the outcome of the work cannot be written as JSON: {error}")))
}
