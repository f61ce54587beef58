//! The messages between the demo and its workers: one JSON object per line. Orders go to the
//! worker's stdin, events come from its stdout.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::{Duration, SystemTime};

/// An order to a worker.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub(crate) enum Order {
    /// Add one to the counter, this many times.
    Work { rounds: u64 },
    /// Add one, but wait for [`Order::Write`] before the write.
    WorkAndPause,
    /// Do the write that waits.
    Write,
}

/// An event that a worker reports.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub(crate) enum Event {
    /// The worker accepts orders from now on.
    Ready,
    /// The worker wants the lock, and waits for it.
    Waits { at: SystemTime },
    /// The worker will now send a request of this operation.
    Sent { about: About, operation: String },
    /// The worker holds the lock.
    Acquired { token: u64, at: SystemTime, lease_ends_at: SystemTime },
    /// The worker still holds the lock, has read the counter, and its next step is the write.
    AboutToWrite { token: u64, lease_left: Duration },
    /// The write was applied, and changed the counter from one value to the other.
    Applied { token: u64, from: u64, to: u64 },
    /// The read or the write was refused, because a holder with a larger token has read or written.
    Refused { token: u64, last_token: u64, lease_left: Duration },
    /// The lock was released, or was already gone. The worker did not use it any more from this time on.
    Released { token: u64, at: SystemTime, already_gone: bool },
    /// The release failed, or its outcome is unknown.
    NotReleased { token: u64, why: String },
    /// The worker has finished its order.
    Finished,
    /// The worker cannot continue.
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
    /// Writes the event to stdout, as a worker.
    pub(crate) fn say(&self) -> anyhow::Result<()> {
        let line = serde_json::to_string(self)?;
        // Writes the line at once, so that a worker that is stopped or killed leaves no half of a
        // line.
        std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).context("stdout is closed")
    }
}
