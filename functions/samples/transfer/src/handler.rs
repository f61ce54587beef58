//! One transfer: lock both accounts, read, and commit both balances in one transaction.

use crate::accounts::{Accounts, Done};
use crate::request::Transfer;
use lambda_lock::{Budget, Error, LockClient, LockKey, LockSet, ReleaseAllOutcome};
use lambda_lock_functions::{AfterWork, Config, ConfigError, Environment, Event, Failure, budget};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use std::time::Duration;

/// The part of the invocation that is reserved for releasing the locks and returning the response.
const TO_ANSWER: Duration = Duration::from_millis(500);

/// Clients and settings that all invocations of a process share.
pub(crate) struct Deps {
    locks: LockClient,
    accounts: Accounts,
    /// Whether the lock table has a sort key.
    sort_key: bool,
}

impl Deps {
    /// Reads the rest of the environment. Sends no request.
    pub(crate) fn new(config: &Config, environment: &Environment<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            locks: config.locks()?,
            accounts: Accounts::read(config.dynamodb()?, environment)?,
            sort_key: config.has_sort_key(),
        })
    }

    /// The lock key of an account. If the table has a sort key, it gets the same text.
    fn key(&self, account: &str) -> LockKey {
        let key = format!("account/{account}");
        let sort_key = self.sort_key.then(|| key.clone());
        LockKey::new(key, sort_key)
    }
}

/// Does the transfer of an event, or returns its stored result if it was done before.
pub(crate) async fn handler(event: LambdaEvent<Event>, deps: &Deps) -> Result<Value, Failure> {
    let transfer = Transfer::read(&event.payload)?;
    let budget = budget(event.context, TO_ANSWER);
    let (done, replayed) = move_amount(transfer, &budget, deps).await?;
    let Done { transfer, from_balance, to_balance, fencing_token } = done;
    Ok(json!({
        "transferId": transfer.id,
        "fromBalance": from_balance,
        "toBalance": to_balance,
        "fencingToken": fencing_token,
        "replayed": replayed,
    }))
}

async fn move_amount(transfer: Transfer, budget: &Budget, deps: &Deps) -> Result<(Done, bool), Failure> {
    let keys = [deps.key(&transfer.from), deps.key(&transfer.to)];
    let set = deps.locks.acquire_all(keys).within(budget).await?;
    match prepare(transfer, &set, deps).await {
        Ok(Prepared::Replayed(done)) => {
            release(set).await;
            Ok((done, true))
        }
        Ok(Prepared::New(done)) => commit(done, set, deps).await,
        Err(failure) => Err(failure.leaving(release(set).await)),
    }
}

/// What a transfer will have done, or has done already.
enum Prepared {
    New(Done),
    Replayed(Done),
}

/// Reads under the locks. Nobody else changes these accounts until the commit, or the commit is refused.
async fn prepare(transfer: Transfer, set: &LockSet, deps: &Deps) -> Result<Prepared, Failure> {
    let accounts = &deps.accounts;
    let (done, from, to) = tokio::join!(
        accounts.done(&transfer.id),
        accounts.balance("from", &transfer.from),
        accounts.balance("to", &transfer.to)
    );
    if let Some(done) = done? {
        return if done.transfer == transfer { Ok(Prepared::Replayed(done)) } else { Err(another_transfer()) };
    }
    let (from, to) = (from?, to?);
    let Some(from_balance) = from.checked_sub(transfer.amount) else {
        return Err(Failure::work_failed(&"the balance of from is less than the amount"));
    };
    let Some(to_balance) = to.checked_add(transfer.amount) else {
        return Err(Failure::work_failed(&"the balance of to would be larger than a number can be"));
    };
    let Some(fencing_token) = set.fencing_token() else {
        return Err(Failure::work_failed(&"the locks of the two accounts were not acquired together"));
    };
    Ok(Prepared::New(Done { transfer, from_balance, to_balance, fencing_token }))
}

/// Writes both balances and the record in one transaction, which is refused if one of the locks is lost. The same
/// transaction releases the locks.
async fn commit(done: Done, set: LockSet, deps: &Deps) -> Result<(Done, bool), Failure> {
    let ends = set.lease_ends_at();
    match set.commit_and_release(deps.accounts.writes(&done)?).await {
        Ok(()) => Ok((done, false)),
        // The record is the only write with a condition.
        Err(error) if is_recorded(&error) => match deps.accounts.done(&done.transfer.id).await? {
            Some(earlier) if earlier.transfer == done.transfer => Ok((earlier, true)),
            _ => Err(another_transfer()),
        },
        Err(error) => Err(Failure::from(error).leaving(AfterWork::FreeBy(ends))),
    }
}

fn is_recorded(error: &Error) -> bool {
    error.is_cancelled() && error.failed_writes().iter().any(|write| write.code == "ConditionalCheckFailed")
}

fn another_transfer() -> Failure {
    Failure::invalid_request(
        "transferId belongs to a transfer with other accounts or another amount: give this transfer another id, or send \
         what the first request had",
    )
}

/// Releases the locks. A failure of the release is only logged, because the leases free the locks.
async fn release(set: LockSet) -> AfterWork {
    let ends = set.lease_ends_at();
    match set.release().await {
        Ok(ReleaseAllOutcome::Released) => AfterWork::Free,
        Ok(ReleaseAllOutcome::AlreadyGone(_)) => {
            tracing::warn!("a lock was no longer ours when the work ended");
            AfterWork::Lost
        }
        Err(error) => {
            tracing::warn!(%error, "the locks were not released; their leases free them");
            AfterWork::FreeBy(ends)
        }
    }
}
