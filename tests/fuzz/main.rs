//! Hostile input: rows, saved locks and observations with any content are read without a panic, and all code
//! that reads them gets the same result.
//!
//! Each test draws new cases in every run. `LAMBDA_LOCK_FUZZ=20` draws twenty times as many, and `.ci/run` draws
//! for about a minute. A case that once failed is kept in its own test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may stop it")]

mod decisions;
mod known_rows;
mod leases;
mod lines;
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

/// Draws this many cases, times the factor in the environment. Reports the smallest case that fails.
#[track_caller]
fn fuzz<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> Checked)
where
    S::Value: Debug,
{
    let times = std::env::var("LAMBDA_LOCK_FUZZ").map_or(1, |times| times.parse().unwrap());
    // Writes no file of seeds: a case that was found is added to the source in a readable form.
    let config = Config { cases: cases * times, failure_persistence: None, ..Config::default() };
    if let Err(found) = TestRunner::new(config).run(&strategy, check) {
        panic!("{found}");
    }
}
