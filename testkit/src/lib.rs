//! What lambda-lock's own tests share.
//!
//! * [`Table`]: an embedded DynamoDB in process, behind the real SDK. No socket, no thread: a
//!   request is a function call, so an hour of virtual time passes in a millisecond.
//! * [`Fault`]: what the network does to a request, scripted attempt by attempt.
//! * [`ManualClock`]: one process's pair of clocks, which a test may freeze, set and let drift.
//! * [`acquired`], [`granted`], [`counted`]: the steps that most tests take.
//! * [`case`]: names the case of a loop over scenarios, so that a failure says which one it was.
//! * [`ends_within`]: a call must end by then. Beside it every test with a [`Process`] has limits of its own,
//!   so that none hangs.
//!
//! Everything follows tokio's clock; tests run under `#[tokio::test(start_paused = true)]`. A request takes
//! [`ONE_WAY`] to the table, and its answer as long back: with no time between them, mistakes about time are
//! invisible.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test harness may stop the test, and say why"
)]

mod case;
mod clock;
mod dispatch;
mod limit;
mod lock;
mod network;
mod table;

pub use case::{Case, case};
pub use clock::{EPOCH_SECONDS, ManualClock};
pub use limit::ends_within;
pub use lock::{acquired, applied, counted, granted, millis, secs};
pub use network::{Fault, ONE_WAY, ROUND_TRIP, Sent};
pub use table::{Process, Table};
