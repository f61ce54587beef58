//! Requirements on the simulation itself: it repeats its runs, much happens in it, and it can fail.

use lambda_lock_protocol::mistakes::Mistake;
use lambda_lock_simulation::{Batch, FIRST_CROWD, Invariant, Options, Summary, run};

fn batch(seeds: u64) -> Summary {
    Batch { base: 1_000_000_000, seeds, threads: 2, mistake: None, stop: None }.run(|_| {})
}

#[test]
fn the_same_seed_runs_the_same() {
    for seed in 0..50 {
        let (one, other) = (run(seed, Options::default()), run(seed, Options { trace: true, ..Options::default() }));
        assert_eq!((one.hash, one.counts), (other.hash, other.counts), "seed {seed}");
    }
    assert_ne!(run(1, Options::default()).hash, run(2, Options::default()).hash);
}

#[test]
fn the_real_sdk_and_a_dynamodb_engine_give_the_same_run() {
    for seed in 0..20 {
        let (pure, by_sdk) = (run(seed, Options::default()), run(seed, Options { sdk: true, ..Options::default() }));
        assert_eq!(by_sdk.violation, None, "seed {seed}");
        assert_eq!((pure.hash, pure.counts), (by_sdk.hash, by_sdk.counts), "seed {seed}");
    }
}

#[test]
fn two_thousand_seeds_keep_all_promises_and_rare_events_happen() {
    let Summary { seeds, counts, violations, .. } = batch(2_000);
    assert!(violations.is_empty(), "{violations:?}");
    assert!(counts.grants / seeds >= 10, "{} grants", counts.grants);
    // `cargo sim` checks all of the counts, in more seeds.
    for often in [counts.takeovers, counts.recovered_answers, counts.stale_effects, counts.commits, counts.settled] {
        assert!(often > 0, "{counts:?}");
    }
}

fn crowds(seeds: u64, mistake: Option<Mistake>) -> Summary {
    Batch { base: FIRST_CROWD, seeds, threads: 2, mistake, stop: mistake.map(|_| 1) }.run(|_| {})
}

#[test]
fn crowds_of_sixteen_in_line_keep_all_promises() {
    let Summary { seeds, counts, violations, .. } = crowds(300, None);
    assert!(violations.is_empty(), "{violations:?}");
    assert!(counts.crowds > seeds / 2 && counts.tickets / seeds >= 20, "{counts:?}");
    assert!(counts.in_turn > 0 && counts.left > 0 && counts.passed > 0 && counts.brought_back > 0, "{counts:?}");
}

#[test]
fn crowds_in_line_notice_mistakes() {
    let mistakes = [
        Mistake::ClaimIgnoresLine,
        Mistake::LeavesForAllAhead,
        Mistake::ServedGoesBack,
        Mistake::SkipAtOnce,
        Mistake::GraceTooShort,
        Mistake::SleeperLeaves,
    ];
    for mistake in mistakes {
        assert!(!crowds(1_500, Some(mistake)).violations.is_empty(), "{mistake:?} was not noticed");
    }
}

#[test]
fn a_resource_that_refuses_nothing_is_overwritten_by_stale_holders() {
    // The control: a simulation that cannot fail proves nothing.
    let unfenced = Options { fenced: false, ..Options::default() };
    let overwritten = (0..100)
        .filter_map(|seed| run(seed, unfenced).violation)
        .filter(|violation| violation.invariant == Invariant::EffectsInOrder)
        .count();
    assert!(overwritten > 10, "stale writes in only {overwritten} of 100 seeds");
}
