//! The random numbers of a test: the same ones in each run.

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
