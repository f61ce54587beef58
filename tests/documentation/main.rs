//! Shows that statements of the documentation are true.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod blocking;
#[cfg(feature = "once")]
mod once;
mod repeats;
mod requests;

use lambda_lock_testkit::secs;
use std::time::Duration;

const LEASE: Duration = secs(20);
