//! Shared helpers of lambda-lock's own tests.
//!
//! * [`Table`]: an embedded DynamoDB in process, used through the real SDK. There is no socket and no thread: a request
//!   is a function call, so an hour of virtual time passes in a millisecond.
//! * [`Fault`]: what the network does to a request, scripted for each attempt.
//! * [`ManualClock`]: the two clocks of a process. A test may freeze them, set them and let them drift.
//! * [`acquired`], [`granted`], [`counted`]: steps that most tests use.
//! * [`case`]: names the case of a loop, so that a failure shows which one it was.
//! * [`ends_within`], [`until`]: fail a call that does not end, or a condition that does not become true, in time. Every test with a [`Process`] also has limits, so that
//!   none hangs.
//!
//! * [`soon`], [`soon_so`], [`takes`]: the same for processes and servers on the machine's own clock, where the machine may
//!   be busy. [`ends_in`], [`soon_is`], [`Said`]: for tests without a runtime.
//!
//! All time is tokio's; tests run under `#[tokio::test(start_paused = true)]`. A request takes [`ONE_WAY`] to
//! the table, and its response takes as long back. Without this time, tests would not find mistakes about
//! time.
//!
//! Random numbers follow from a seed that is always the same, so that a test passes or fails whenever it is run.
//! `LAMBDA_LOCK_TEST_SEED=7` gives another one. `LAMBDA_LOCK_ROUNDS=50` gives crowds more rounds ([`rounds`]).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test harness may fail the test"
)]

mod case;
mod clock;
mod dispatch;
mod limbo;
mod limit;
mod lock;
mod network;
mod random;
mod said;
mod table;

pub use case::{Case, case};
pub use clock::{EPOCH_SECONDS, ManualClock};
pub use limit::{ends_within, soon, soon_so, takes, until};
pub use lock::{acquired, applied, counted, granted, millis, peeked, secs};
pub use network::{Fault, ONE_WAY, ROUND_TRIP, Sent};
pub use random::rounds;
pub use said::{Said, ends_in, soon_is};
pub use table::{Process, Table};
