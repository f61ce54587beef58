//! The random numbers of a test: the same ones in each run. And how many rounds a crowd has.

use std::cell::Cell;

/// The variable that gives another seed.
const SEED_VARIABLE: &str = "LAMBDA_LOCK_TEST_SEED";

thread_local! {
    static IS_SEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Seeds the generator of this thread, once. Every test has a thread of its own.
pub(crate) fn seed() {
    if !IS_SEEDED.replace(true) {
        fastrand::seed(std::env::var(SEED_VARIABLE).map_or(0, |seed| seed.parse().expect("a number")));
    }
}

/// How often each caller of a crowd has its turn: so often, or as often as `LAMBDA_LOCK_ROUNDS` says. The nightly run has
/// more rounds than `cargo test`, to see rare interleavings.
///
/// # Panics
/// Panics if the variable is no number.
pub fn rounds(ordinary: u64) -> u64 {
    std::env::var("LAMBDA_LOCK_ROUNDS").map_or(ordinary, |rounds| rounds.parse().expect("LAMBDA_LOCK_ROUNDS: a number"))
}
