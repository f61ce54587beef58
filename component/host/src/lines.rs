//! The calls and results of the conformance scenarios, as this host reads and writes them.

use crate::bindings::types;
use crate::convert::failure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// Answers the calls.
pub trait Answer {
    /// The result of a call. A failure that the lock reports is the error [`types::Error`]. Any other error is a trap.
    fn answer(&mut self, ask: Ask) -> anyhow::Result<Value>;
}

/// Answers each line of standard input until the input ends.
pub fn serve(mut host: impl Answer) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let told = match host.answer(serde_json::from_str(&line?)?) {
            Ok(told) => json!({"ok": told}),
            Err(error) => json!({"error": failure(error.downcast::<types::Error>()?)}),
        };
        writeln!(output, "{told}")?;
        output.flush()?;
    }
    Ok(())
}

/// A failure that the lock reports.
#[derive(Serialize)]
pub struct Failure {
    pub kind: &'static str,
    pub message: String,
    pub held: Option<Held>,
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
    Release { lock: usize, delete_row: bool },
    ReleaseSaved { saved: SavedLock, or_later_grant_of_owner: bool },
    ReleaseWorkflow { key: String, workflow: String },
    Peek { key: String },
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    pub holder: String,
    pub lease_ends_at: Option<u64>,
    pub retry_after: u64,
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
pub struct Row {
    pub holder: String,
    pub released: bool,
    pub lease: u64,
    pub renewed_at: Option<u64>,
    pub lease_ends_at: Option<u64>,
    pub fencing_token: Option<u64>,
    pub workflow: Option<String>,
    pub data: Option<Vec<u8>>,
    pub version: String,
}
