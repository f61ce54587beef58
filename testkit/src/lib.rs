//! What lambda-lock's own tests share.
//!
//! * [`Table`]: an embedded DynamoDB in process, behind the real SDK. No socket, no thread: a
//!   request is a function call, so an hour of virtual time passes in a millisecond.
//! * [`Fault`]: what the network does to a request, scripted attempt by attempt.
//! * [`ManualClock`]: one process's pair of clocks, which a test may freeze, set and let drift.
//!
//! Everything follows tokio's clock; tests run under `#[tokio::test(start_paused = true)]`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken test harness may stop the test")]

mod clock;
mod dispatch;
mod network;
mod table;

pub use clock::{EPOCH_SECONDS, ManualClock};
pub use network::{Fault, Sent};
pub use table::{Process, Table};
