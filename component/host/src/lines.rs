//! The calls and results of the conformance scenarios, as this host reads and writes them.

use crate::bindings::locks::SeveralError;
use crate::bindings::types;
use crate::convert::failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// Answers the calls.
pub trait Answer {
    /// The result of a call. A failure that the lock reports is the error [`types::Error`] or [`SeveralError`]. Any other
    /// error is a trap.
    fn answer(&mut self, ask: Ask) -> anyhow::Result<Value>;
}

/// Answers each line of standard input until the input ends.
pub fn serve(mut host: impl Answer) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let told = match host.answer(serde_json::from_str(&line?)?) {
            Ok(told) => json!({"ok": told}),
            Err(error) => json!({"error": failed(error)?}),
        };
        writeln!(output, "{told}")?;
        output.flush()?;
    }
    Ok(())
}

fn failed(error: anyhow::Error) -> anyhow::Result<Failure> {
    Ok(match error.downcast::<SeveralError>() {
        Ok(SeveralError { error, blocked }) => {
            Failure { blocked: blocked.into_iter().map(Into::into).collect(), ..failure(error) }
        }
        Err(error) => failure(error.downcast::<types::Error>()?),
    })
}

/// A failure that the lock reports.
#[derive(Serialize)]
pub struct Failure {
    pub kind: &'static str,
    pub message: String,
    pub held: Option<Held>,
    pub blocked: Vec<Blocked>,
}

#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ask {
    Open(Open),
    Acquire(Acquire),
    TryAcquire(Acquire),
    Reclaim { saved: SavedLock, lease: u64 },
    Resume { saved: SavedLock },
    Renew { lock: usize, lease: Option<u64>, data: Option<Vec<u8>> },
    Remaining { lock: usize },
    EnsureRemaining { lock: usize, step: u64 },
    ToSaved { lock: usize },
    ConditionCheck { lock: usize },
    Release { lock: usize },
    ReleaseSaved { saved: SavedLock, or_later_grant_of_owner: bool },
    ReleaseWorkflow { key: String, workflow: String },
    Peek { key: String },
    AcquireAll { keys: Vec<String>, in_order: bool, several: Several },
    ResumeAll { saved: Vec<SavedLock>, lease: Option<u64> },
    RenewAll { set: usize },
    RemainingOfAll { set: usize },
    EnsureRemainingOfAll { set: usize, step: u64 },
    ConditionChecks { set: usize },
    SavedAll { set: usize, keep: bool },
    ReleaseAll { set: usize },
    ReleaseAllSaved { saved: Vec<SavedLock> },
    AcquirePermit { name: String, permits: u32, several: Several },
    Pairs { key: String, count: u32 },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Open {
    pub table: String,
    pub endpoint: String,
    pub access_key_id: String,
    pub owner: String,
    pub request_timeout: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acquire {
    pub key: String,
    pub remaining: Option<u64>,
    pub lease: Option<u64>,
    pub owner: Option<String>,
    pub workflow: Option<String>,
    pub data: Option<Vec<u8>>,
    pub observation: Option<Observation>,
    pub reclaim_own: bool,
    pub queueing: Option<Queueing>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queueing {
    BehindSlowHolders,
    InTurn,
    OutOfTurn,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Several {
    pub remaining: u64,
    pub reserve: u64,
    pub lease: Option<u64>,
    pub owner: Option<String>,
    pub workflow: Option<String>,
    pub seen: Vec<Blocked>,
    pub reclaim_own: bool,
}

#[derive(Deserialize, Serialize)]
pub struct Blocked {
    pub key: String,
    pub held: Held,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedLock {
    pub key: String,
    pub owner: String,
    pub version: String,
    pub fencing_token: u64,
    pub lease: u64,
    pub lease_ends_at: u64,
    pub workflow: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observation {
    pub version: String,
    pub lease: u64,
    pub unchanged_for: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    pub holder: String,
    pub lease_ends_at: Option<u64>,
    pub retry_after: u64,
    pub waiting: u64,
    pub freeze_reason: Option<String>,
    pub observation: Observation,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    pub lock: usize,
    pub owner: String,
    pub fencing_token: u64,
    pub lease_ends_at: u64,
    pub remaining: u64,
    pub data: Option<Vec<u8>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantedSet {
    pub set: usize,
    pub keys: Vec<String>,
    pub fencing_token: Option<u64>,
    pub remaining: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub holder: String,
    pub released: bool,
    pub lease: u64,
    pub renewed_at: Option<u64>,
    pub lease_ends_at: Option<u64>,
    pub fencing_token: Option<u64>,
    pub workflow: Option<String>,
    pub data: Option<Vec<u8>>,
    pub freeze_reason: Option<String>,
    pub version: String,
}
