//! What operators do with locks that are not theirs: list them, and break one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod breaking;
mod listing;

use lambda_lock_testkit::secs;
use std::time::Duration;

const LEASE: Duration = secs(20);
