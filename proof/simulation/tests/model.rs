//! The model must be able to find mistakes. `cargo sim --model` checks all of its states.

use lambda_lock_protocol::mistakes::Mistake;
use lambda_lock_simulation::model::{Asking, Bounds, Checked, check};

const SMALL: Bounds = Bounds {
    asking: Asking::ForOneLock,
    depth: 9,
    time: 6,
    calls: 3,
    messages: 2,
    duplicates: 1,
    conflicts: 0,
    crashes: 1,
};

fn finds_nothing_but(mistakes: &[Mistake], bounds: Bounds) -> Checked {
    let unchanged = check(bounds, None, |_| {});
    assert_eq!(unchanged.broken, Vec::<String>::new());
    for mistake in mistakes {
        let checked = check(bounds, Some(*mistake), |_| {});
        assert!(!checked.broken.is_empty(), "{mistake:?} was not noticed in {} states", checked.states);
    }
    unchanged
}

#[test]
fn the_model_finds_mistakes_and_nothing_in_the_unchanged_protocol() {
    let mistakes = [
        Mistake::TokenNotBumped,
        Mistake::ReleaseUnconditional,
        Mistake::RenewOnExactVersion,
        Mistake::HolderIgnoresItsEnd,
        Mistake::NoRecognition,
    ];
    finds_nothing_but(&mistakes, SMALL);
}

#[test]
fn the_model_of_a_line_finds_mistakes_and_nothing_in_the_unchanged_protocol() {
    let mistakes = [
        Mistake::JoinOnFreeRowSleeps,
        Mistake::ClaimIgnoresLine,
        Mistake::DeadHolderIgnoresLine,
        Mistake::GrantServesNoTicket,
        Mistake::LeavesForAllAhead,
        Mistake::NewcomerPasses,
        Mistake::SkipAtOnce,
        Mistake::SkipCountsHeldTime,
        Mistake::TakeOfAnyVersion,
        Mistake::TakeoverIgnoresLine,
    ];
    let line = Bounds { asking: Asking::InLine, time: 6, calls: 2, ..SMALL };
    let never = finds_nothing_but(&mistakes, line).sometimes.into_iter().filter(|(_, often)| *often == 0);
    assert_eq!(never.collect::<Vec<_>>(), [], "events that never happened");
}

#[test]
fn the_model_of_a_set_finds_mistakes_and_nothing_in_the_unchanged_protocol() {
    let mistakes = [
        Mistake::SetSettledByLook,
        Mistake::SetKeyWithoutCondition,
        Mistake::RenewOnExactVersion,
        Mistake::NoRecognition,
    ];
    let small = Bounds { asking: Asking::ForASet, conflicts: 1, crashes: 0, ..SMALL };
    finds_nothing_but(&mistakes, small);
    // A set must be granted, and time must pass, before another caller may have one of its locks.
    let deeper = Bounds { depth: 11, duplicates: 0, conflicts: 0, ..small };
    finds_nothing_but(&[Mistake::SetCountsFromRecognition, Mistake::HolderIgnoresItsEnd], deeper);
}
