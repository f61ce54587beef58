//! An attempt: a held lock whose work ends when its outcome is stored.

use super::errors;
use crate::engine::error::Error;
use crate::engine::report;
use crate::lock::commit;
use crate::lock::guard::Lock;
use crate::lock::release::ReleaseOutcome;
use aws_sdk_dynamodb::types::TransactWriteItem;
use lambda_lock_protocol::{Invalid, OnceRecord, StoredOutcome, from_epoch_millis};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::{Deref, DerefMut};
use std::time::SystemTime;

/// In characters.
const MAX_REASON: usize = 500;

/// The one attempt that does the idempotent work now.
///
/// It holds a [`Lock`], and between the steps of the work it can do what that lock can: checkpoints, commits and fences. Its
/// [fencing token](Lock::fencing_token) is larger than that of every earlier attempt. It is not an idempotency key, because each
/// attempt has a different token. An attempt ends when it stores an outcome, or when it releases the work for another attempt.
#[derive(Debug)]
#[must_use = "an attempt that is dropped keeps others waiting until its lease ends: complete it, fail it, or give it back"]
pub struct Attempt {
    lock: Lock,
    number: u64,
    first_seen: Option<SystemTime>,
    /// The failure to store if the work ends with an error.
    failure: Option<String>,
}

impl Attempt {
    pub(super) fn new(lock: Lock, record: Option<OnceRecord>) -> Self {
        let (number, first_seen) = record.map_or((1, None), |record| (record.attempts, Some(record.first_seen)));
        Self { lock, number, first_seen: first_seen.and_then(from_epoch_millis), failure: None }
    }

    /// The number of this attempt at the work, counted from 1. If it is more than 1, an earlier attempt failed,
    /// crashed, or was too slow, and may have done a part of the work.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When the work was first requested, by the wall clock of the caller that requested it.
    pub fn first_seen_at(&self) -> Option<SystemTime> {
        self.first_seen
    }

    /// Stores the result, which later calls return. This call ends the attempt.
    ///
    /// # Errors
    /// Returns `Lost`: another attempt has taken over, and its outcome counts. Returns `Unknown`: retry the same call
    /// for the work, which then returns the result or does the work again. Returns `InvalidRequest`: the result cannot
    /// be written as JSON, or is too large. Then the next call does the work again: [`run`](super::Once::run) prevents
    /// that, and reads the result back before it is stored, which this call does not. Returns `Unavailable`,
    /// `InvalidRecord`, `Table` or `Denied`. After an error, it tries to release the attempt, unless the attempt is lost.
    ///
    /// # Requests and IAM actions
    /// It sends one write (`dynamodb:UpdateItem`). It sends one more after a response was lost or after an error.
    ///
    /// # Cancel safety
    /// If the future is dropped, the result may or may not be stored. Retry the call for the work.
    pub async fn complete<T: Serialize + ?Sized>(self, result: &T) -> Result<(), Error> {
        self.complete_with(result, Vec::new()).await
    }

    /// Stores the result and applies these writes in one transaction. Everything is applied while no other attempt has
    /// taken over, or nothing. This call ends the attempt.
    ///
    /// # Errors
    /// Returns the errors of [`complete`](Attempt::complete). Also returns `Cancelled` when DynamoDB refused one of the
    /// writes. Then nothing was applied or stored, and the attempt was released.
    ///
    /// # Requests and IAM actions
    /// It sends one `TransactWriteItems`. It needs `dynamodb:UpdateItem` and the actions of the writes. Without writes,
    /// it sends the requests of [`complete`](Attempt::complete).
    ///
    /// # Cancel safety
    /// The same holds as for [`complete`](Attempt::complete).
    pub async fn complete_with<T: Serialize + ?Sized>(
        self,
        result: &T,
        writes: impl IntoIterator<Item = TransactWriteItem>,
    ) -> Result<(), Error> {
        let outcome = json(result).and_then(|json| self.checked(StoredOutcome::Done(json))).map_err(|invalid| {
            Invalid::new(format!("{invalid}; nothing was stored, so the next call does the work again"))
        });
        commit::settle(self.lock, outcome, writes.into_iter().collect()).await
    }

    /// Stores the result, which later calls return, and applies these writes. Returns the result as later calls read it. If
    /// it cannot be stored, this is stored as a failure instead: the work was done, and must not be done again each time.
    pub(super) async fn complete_as_read<T: Serialize + DeserializeOwned>(
        self,
        result: T,
        writes: Vec<TransactWriteItem>,
    ) -> Result<T, Error> {
        let stored = json(&result).and_then(|json| {
            let read = serde_json::from_str(&json).map_err(|error| {
                let error = cut(&error);
                Invalid::new(format!(
                    "the result of the work cannot be read from the JSON that it is written as: {error}"
                ))
            })?;
            self.checked(StoredOutcome::Done(json)).map(|outcome| (outcome, read))
        });
        // It may be large.
        drop(result);
        match stored {
            Ok((outcome, read)) => {
                commit::settle(self.lock, Ok(outcome), writes).await?;
                Ok(read)
            }
            Err(invalid) => {
                let (key, failure) = (self.lock.key().clone(), instead(&invalid));
                commit::settle(self.lock, Ok(StoredOutcome::Failed(failure.clone())), Vec::new()).await?;
                Err(errors::result_not_stored(&key, &invalid, failure))
            }
        }
    }

    fn checked(&self, outcome: StoredOutcome) -> Result<StoredOutcome, Invalid> {
        self.lock.held.engine.settings.check_outcome(self.lock.key(), self.lock.owner(), &outcome)?;
        Ok(outcome)
    }

    /// Stores a failure. Later calls return [`FailedBefore`](crate::ErrorKind::FailedBefore), and the work is not
    /// retried. This call ends the attempt.
    ///
    /// # Errors
    /// They are the same as for [`complete`](Attempt::complete), with one exception. A failure that cannot be written as
    /// JSON, or is too large, is `InvalidRequest`, but the work is not retried either: a text that says so is stored instead.
    ///
    /// # Requests, IAM actions, cancel safety
    /// They are the same as for [`complete`](Attempt::complete).
    pub async fn fail<F: Serialize + ?Sized>(self, failure: &F) -> Result<(), Error> {
        match json(failure).and_then(|json| self.checked(StoredOutcome::Failed(json))) {
            Ok(outcome) => commit::settle(self.lock, Ok(outcome), Vec::new()).await,
            Err(invalid) => {
                let failed = StoredOutcome::Failed(instead(&invalid));
                commit::settle(self.lock, Ok(failed), Vec::new()).await?;
                Err(invalid.into())
            }
        }
    }

    /// Use this within [`run`](super::Once::run). If the work then returns an error, this failure is stored, and the
    /// work is not retried. Sends no request.
    ///
    /// # Errors
    /// Returns `InvalidRequest` when the failure cannot be written as JSON, or is too large for a record (400 KB). The work
    /// is not retried either: a text that says so is stored instead.
    pub fn fail_for_good<F: Serialize + ?Sized>(&mut self, failure: &F) -> Result<(), Error> {
        let stored = json(failure).and_then(|json| self.checked(StoredOutcome::Failed(json)));
        let (failure, result) = match stored {
            Ok(outcome) => (outcome.json().to_owned(), Ok(())),
            Err(invalid) => (instead(&invalid), Err(invalid.into())),
        };
        self.failure = Some(failure);
        result
    }

    /// Releases the work, so that another attempt can do it.
    ///
    /// # Errors, requests, IAM actions, cancel safety
    /// They are the same as for [`Lock::release`].
    pub async fn give_back(self) -> Result<ReleaseOutcome, Error> {
        self.lock.release().await
    }

    /// Ends the attempt after the lease ended while the work ran. Another attempt may do the work by now, so the record
    /// stays as it is.
    pub(super) fn cut_short(self) -> Error {
        self.lock.held.abandon();
        report::cut_short(&self.lock.held.engine, self.lock.key());
        errors::work_cut_short(self.lock.key())
    }

    /// Ends the attempt after the work returned an error. The caller gets that error, so failures here are only logged.
    pub(super) async fn failed(self) {
        let key = self.lock.key().clone();
        let Some(failure) = self.failure else {
            self.lock.held.finish().await;
            return;
        };
        if let Err(error) = commit::settle(self.lock, Ok(StoredOutcome::Failed(failure)), Vec::new()).await {
            tracing::warn!(%key, %error, "the failure of an idempotent work was not stored; it may be tried again");
        }
    }
}

impl Deref for Attempt {
    type Target = Lock;

    fn deref(&self) -> &Lock {
        &self.lock
    }
}

impl DerefMut for Attempt {
    fn deref_mut(&mut self) -> &mut Lock {
        &mut self.lock
    }
}

/// The failure that is stored instead of an outcome that cannot be stored.
fn instead(invalid: &Invalid) -> String {
    serde_json::Value::from(invalid.to_string()).to_string()
}

/// The text of an error. It may quote the outcome, which may be large.
fn cut(error: &serde_json::Error) -> String {
    error.to_string().chars().take(MAX_REASON).collect()
}

fn json<T: Serialize + ?Sized>(outcome: &T) -> Result<String, Invalid> {
    serde_json::to_string(outcome)
        .map_err(|error| Invalid::new(format!("the outcome of the work cannot be written as JSON: {}", cut(&error))))
}
