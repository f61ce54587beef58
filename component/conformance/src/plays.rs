//! Calls of the scenarios, and checks of their results.

use crate::dynamodb_json;
use crate::stage::{NATIVE, SUBJECT, Stage, TABLE};
use crate::subject::{Acquire, Ask, Failure, Queueing, Several, Subject};
use anyhow::{Context, bail, ensure};
use aws_sdk_dynamodb::types::TransactWriteItem;
use serde::Deserialize;
use serde_json::Value;

/// How long one request of a subject may take, in milliseconds.
pub(crate) const REQUEST_TIMEOUT: u64 = 400;

/// A player: the subject, or the native client next to it.
pub(crate) struct Player<'a> {
    subject: &'a dyn Subject,
}

/// A lock that was granted to a player.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Grant {
    pub(crate) lock: u64,
    pub(crate) owner: String,
    pub(crate) fencing_token: u64,
    pub(crate) lease_ends_at: u64,
    pub(crate) remaining: u64,
    pub(crate) data: Option<Vec<u8>>,
}

/// Locks that one call granted to a player.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantedSet {
    pub(crate) set: u64,
    pub(crate) keys: Vec<String>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) remaining: u64,
}

/// A place that was granted to a player.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Permit {
    pub(crate) place: u32,
    pub(crate) lock: Grant,
}

/// The lock of another holder.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Held {
    pub(crate) holder: String,
    pub(crate) lease_ends_at: Option<u64>,
    pub(crate) retry_after: u64,
    pub(crate) waiting: u64,
    pub(crate) freeze_reason: Option<String>,
    pub(crate) observation: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Tried {
    Granted(Grant),
    Held(Held),
}

/// A lock's row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) holder: String,
    pub(crate) released: bool,
    pub(crate) lease: u64,
    pub(crate) lease_ends_at: Option<u64>,
    pub(crate) renewed_at: Option<u64>,
    pub(crate) fencing_token: Option<u64>,
    pub(crate) workflow: Option<String>,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) freeze_reason: Option<String>,
    pub(crate) version: String,
}

impl<'a> Player<'a> {
    /// The subject, newly opened.
    pub(crate) async fn subject(stage: &Stage, subject: &'a dyn Subject) -> anyhow::Result<Self> {
        Self::opened(stage, subject, SUBJECT, TABLE).await
    }

    /// A native client that uses the crate itself, newly opened.
    pub(crate) async fn native(stage: &Stage, native: &'a crate::Native) -> anyhow::Result<Self> {
        Self::opened(stage, native, NATIVE, TABLE).await
    }

    pub(crate) async fn opened(
        stage: &Stage,
        subject: &'a dyn Subject,
        caller: &str,
        table: &str,
    ) -> anyhow::Result<Self> {
        let player = Self { subject };
        let open = Ask::Open {
            table: table.to_owned(),
            endpoint: stage.endpoint().to_owned(),
            access_key_id: caller.to_owned(),
            owner: format!("the {caller}"),
            request_timeout: REQUEST_TIMEOUT,
        };
        player.told(open).await?;
        Ok(player)
    }

    /// The result of a call, or the lock's error.
    pub(crate) async fn ask(&self, ask: Ask) -> anyhow::Result<Result<Value, Failure>> {
        self.subject.ask(ask).await
    }

    /// The result of a call that must succeed.
    pub(crate) async fn told(&self, ask: Ask) -> anyhow::Result<Value> {
        let asked = format!("{ask:?}");
        self.ask(ask).await?.map_err(|failure| anyhow::anyhow!("{asked} failed with {failure}"))
    }

    /// The error of a call that must fail with this kind.
    pub(crate) async fn fails(&self, kind: &str, ask: Ask) -> anyhow::Result<Failure> {
        let asked = format!("{ask:?}");
        match self.ask(ask).await? {
            Ok(told) => bail!("{asked} should have failed with {kind}, but returned {told}"),
            Err(failure) => {
                ensure!(failure.kind == kind, "{asked} should have failed with {kind}, but failed with {failure}");
                ensure!(!failure.message.is_empty(), "{asked} failed without a message");
                Ok(failure)
            }
        }
    }

    pub(crate) async fn acquire(&self, acquire: Acquire) -> anyhow::Result<Grant> {
        read(self.told(Ask::Acquire(acquire)).await?)
    }

    pub(crate) async fn try_acquire(&self, acquire: Acquire) -> anyhow::Result<Tried> {
        read(self.told(Ask::TryAcquire(acquire)).await?)
    }

    /// A try that must be granted.
    pub(crate) async fn granted(&self, acquire: Acquire) -> anyhow::Result<Grant> {
        match self.try_acquire(acquire).await? {
            Tried::Granted(grant) => Ok(grant),
            Tried::Held(held) => bail!("should have been granted, but is {held:?}"),
        }
    }

    /// A try that must be refused.
    pub(crate) async fn refused(&self, acquire: Acquire) -> anyhow::Result<Held> {
        match self.try_acquire(acquire).await? {
            Tried::Held(held) => Ok(held),
            Tried::Granted(grant) => bail!("should have been refused, but is {grant:?}"),
        }
    }

    pub(crate) async fn resume(&self, saved: Value) -> anyhow::Result<Grant> {
        read(self.told(Ask::Resume { saved }).await?)
    }

    pub(crate) async fn reclaim(&self, saved: Value, lease: u64) -> anyhow::Result<Grant> {
        read(self.told(Ask::Reclaim { saved, lease }).await?)
    }

    pub(crate) async fn renew(&self, grant: &Grant) -> anyhow::Result<()> {
        self.told(renew(grant)).await.map(drop)
    }

    pub(crate) async fn remaining(&self, grant: &Grant) -> anyhow::Result<u64> {
        read(self.told(Ask::Remaining { lock: grant.lock }).await?)
    }

    pub(crate) async fn to_saved(&self, grant: &Grant) -> anyhow::Result<Value> {
        self.told(Ask::ToSaved { lock: grant.lock }).await
    }

    /// The condition that a lock is still held, for a transaction of another client.
    pub(crate) async fn condition_check(&self, grant: &Grant) -> anyhow::Result<TransactWriteItem> {
        dynamodb_json::read(&self.told(Ask::ConditionCheck { lock: grant.lock }).await?)
    }

    /// The outcome of a release: `released` or `already-gone`.
    pub(crate) async fn release(&self, grant: &Grant) -> anyhow::Result<String> {
        read(self.told(Ask::Release { lock: grant.lock }).await?)
    }

    pub(crate) async fn release_saved(&self, saved: Value) -> anyhow::Result<String> {
        read(self.told(Ask::ReleaseSaved { saved, or_later_grant_of_owner: false }).await?)
    }

    /// Several locks that must be granted.
    pub(crate) async fn acquire_all(&self, ask: Ask) -> anyhow::Result<GrantedSet> {
        read(self.told(ask).await?)
    }

    pub(crate) async fn resume_all(&self, saved: Vec<Value>) -> anyhow::Result<GrantedSet> {
        read(self.told(Ask::ResumeAll { saved, lease: None }).await?)
    }

    pub(crate) async fn renew_all(&self, set: &GrantedSet) -> anyhow::Result<()> {
        self.told(Ask::RenewAll { set: set.set }).await.map(drop)
    }

    pub(crate) async fn remaining_of_all(&self, set: &GrantedSet) -> anyhow::Result<u64> {
        read(self.told(Ask::RemainingOfAll { set: set.set }).await?)
    }

    /// The saved locks of a set, which stays.
    pub(crate) async fn to_saved_all(&self, set: &GrantedSet) -> anyhow::Result<Vec<Value>> {
        read(self.told(Ask::SavedAll { set: set.set, keep: true }).await?)
    }

    pub(crate) async fn condition_checks(&self, set: &GrantedSet) -> anyhow::Result<Vec<TransactWriteItem>> {
        let checks: Vec<Value> = read(self.told(Ask::ConditionChecks { set: set.set }).await?)?;
        checks.iter().map(dynamodb_json::read).collect()
    }

    /// The keys that were gone.
    pub(crate) async fn release_all(&self, set: &GrantedSet) -> anyhow::Result<Vec<String>> {
        read(self.told(Ask::ReleaseAll { set: set.set }).await?)
    }

    pub(crate) async fn release_all_saved(&self, saved: Vec<Value>) -> anyhow::Result<Vec<String>> {
        read(self.told(Ask::ReleaseAllSaved { saved }).await?)
    }

    /// A permit that must be granted.
    pub(crate) async fn permit(&self, ask: Ask) -> anyhow::Result<Permit> {
        read(self.told(ask).await?)
    }

    pub(crate) async fn peek(&self, key: &str) -> anyhow::Result<Option<Row>> {
        read(self.told(Ask::Peek { key: key.to_owned() }).await?)
    }
}

pub(crate) fn renew(grant: &Grant) -> Ask {
    Ask::Renew { lock: grant.lock, lease: None, data: None }
}

/// Options of a call for several locks or for a place, which tries once.
pub(crate) fn once(lease: u64) -> Several {
    Several { remaining: 20_000, reserve: 20_000, lease: Some(lease), ..Several::default() }
}

/// Options of a call for several locks or for a place, which waits for this time.
pub(crate) fn waiting_for(wait: u64, lease: u64) -> Several {
    Several { remaining: 20_000 + wait, reserve: 20_000, lease: Some(lease), ..Several::default() }
}

/// Options with a lease for this key.
pub(crate) fn lease(key: &str, lease: u64) -> Acquire {
    Acquire { key: key.to_owned(), lease: Some(lease), ..Acquire::default() }
}

/// Options with a waiting time and a lease for this key.
pub(crate) fn waiting(key: &str, remaining: u64, lease: u64) -> Acquire {
    Acquire { key: key.to_owned(), remaining: Some(remaining), lease: Some(lease), ..Acquire::default() }
}

/// Options of a call that waits in line from its first look on.
pub(crate) fn in_turn(key: &str, remaining: u64, lease: u64) -> Acquire {
    Acquire { queueing: Some(Queueing::InTurn), ..waiting(key, remaining, lease) }
}

pub(crate) fn read<T: for<'de> Deserialize<'de>>(told: Value) -> anyhow::Result<T> {
    let text = told.to_string();
    serde_json::from_value(told).with_context(|| format!("unexpected result: {text}"))
}
