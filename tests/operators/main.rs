//! What operators do with locks that are not theirs: list them, break one, freeze one, and allow work again that failed for good.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod breaking;
mod freezing;
mod listing;
mod resetting;

use lambda_lock_testkit::secs;
use std::time::Duration;

const LEASE: Duration = secs(20);
