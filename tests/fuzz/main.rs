//! Hostile input: whatever stands on a row, in a lock that was written down or in an observation is read
//! without a panic, and all that read it agree on what it says.
//!
//! Each test draws new cases in every run. `LAMBDA_LOCK_FUZZ=20` draws twenty times as many, and `.ci/run` draws
//! for about a minute. What was found once is a case of its own, beside the test that found it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod decisions;
mod known_rows;
mod leases;
mod numbers;
#[cfg(feature = "once")]
mod once;
mod rows;
mod saved;
mod versions;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::fmt::Debug;

type Checked = Result<(), TestCaseError>;

/// Draws this many cases, times what the environment asks for, and says the smallest one that fails.
#[track_caller]
fn fuzz<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> Checked)
where
    S::Value: Debug,
{
    let times = std::env::var("LAMBDA_LOCK_FUZZ").map_or(1, |times| times.parse().unwrap());
    // What was found goes into the source as a case that people can read, so no file of seeds is written.
    let config = Config { cases: cases * times, failure_persistence: None, ..Config::default() };
    if let Err(found) = TestRunner::new(config).run(&strategy, check) {
        panic!("{found}");
    }
}
