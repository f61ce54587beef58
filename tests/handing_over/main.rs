//! Handing a lock over and releasing it: saved locks, resume, reclaim and every way to release.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod cleaning_up;
mod data;
mod late_copies;
mod reclaim;
mod release;
mod tokens;

use lambda_lock_testkit::secs;
use std::time::Duration;

const LEASE: Duration = secs(20);
