//! The real SDK client under scripted HTTP: what is said after answers were lost, late, broken or
//! refused, and exactly how many requests that takes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod acquire;
mod copies;
mod given_up;
mod refusals;
mod renew_and_release;
mod throttling;

use lambda_lock_testkit::secs;
use std::time::Duration;

const LEASE: Duration = secs(20);
