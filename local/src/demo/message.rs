//! What the demo and its workers say to each other: one JSON object per line, orders on the
//! worker's stdin, events on its stdout.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::{Duration, SystemTime};

/// What a worker is told to do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub(crate) enum Order {
    /// Add one to the counter, this many times.
    Work { rounds: u64 },
    /// Add one, but wait with the write for [`Order::Write`].
    WorkAndPause,
    /// Do the write that was waited with.
    Write,
}

/// What happened to a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(crate) enum Event {
    /// Takes orders from now on.
    Ready,
    /// Is about to send a request of this operation.
    Sent { about: About, operation: String },
    /// Holds the lock.
    Acquired { token: u64, at: SystemTime, lease_ends_at: SystemTime },
    /// Still holds the lock, has read the counter, and would write next.
    AboutToWrite { token: u64, lease_left: Duration },
    /// Its write was applied: the counter went from one value to the next.
    Applied { token: u64, from: u64, to: u64 },
    /// Its write was refused: a holder with a larger token had written.
    Refused { token: u64, last_token: u64, lease_left: Duration },
    /// Gave the lock back, or found that it was gone already.
    Released { token: u64, already_gone: bool },
    /// Could not give the lock back, or does not know whether it could.
    NotReleased { token: u64, why: String },
    /// Has done everything that it was told.
    Finished,
    /// Cannot go on.
    Failed { why: String },
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum About {
    /// The lock.
    Lock,
    /// The counter that it guards.
    Counter,
}

impl Event {
    /// Says it, as a worker.
    pub(crate) fn say(&self) -> anyhow::Result<()> {
        let line = serde_json::to_string(self)?;
        // In one piece, so that a worker that is stopped or killed leaves no half of a line.
        std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).context("nobody listens")
    }
}
