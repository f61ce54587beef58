//! The real SDK client with scripted HTTP. Responses are lost, late, broken or refusals. The tests
//! check the result and the exact number of requests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod acquire;
mod copies;
mod given_up;
mod idle_connections;
mod refusals;
mod throttling;

use lambda_lock_testkit::secs;
use std::time::Duration;

const LEASE: Duration = secs(20);
