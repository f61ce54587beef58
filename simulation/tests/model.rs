//! The model must be able to find mistakes. `cargo sim --model` checks all of its states.

use lambda_lock::mistakes::Mistake;
use lambda_lock_simulation::model::{Bounds, check};

const SMALL: Bounds = Bounds { depth: 9, time: 6, calls: 3, messages: 2, duplicates: 1, crashes: 1 };

#[test]
fn the_model_finds_mistakes_and_nothing_in_the_unchanged_protocol() {
    assert_eq!(check(SMALL, None, 2, |_| {}).broken, Vec::<String>::new());
    for mistake in [
        Mistake::TokenNotBumped,
        Mistake::ReleaseUnconditional,
        Mistake::RenewOnExactVersion,
        Mistake::HolderIgnoresItsEnd,
    ] {
        let checked = check(SMALL, Some(mistake), 2, |_| {});
        assert!(!checked.broken.is_empty(), "{mistake:?} was not noticed in {} states", checked.states);
    }
}
