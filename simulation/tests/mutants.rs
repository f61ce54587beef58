//! The gate: each known mistake is noticed, by the seed that is written down for it.

#![allow(clippy::print_stdout, reason = "what took another seed than the table says should be seen")]

use lambda_lock::mutants::{self, Mutant};
use lambda_lock_simulation::{Options, read, run, survey};

const TABLE: &str = include_str!("../mutants.md");

/// What takes more seeds than this is looked for on demand, where the seed that is written down is too old.
const RARE: u64 = 10_000;

fn noticed(mutant: Option<Mutant>, seed: u64) -> Option<String> {
    mutants::set(mutant);
    let violation = run(seed, Options::default()).violation;
    mutants::set(None);
    violation.map(|violation| format!("{:?}", violation.invariant))
}

#[test]
fn every_known_mistake_is_noticed() {
    let known: Vec<_> = TABLE.lines().filter_map(read).collect();
    for mutant in mutants::ALL {
        let line = known.iter().find(|(known, ..)| known == mutant);
        let (_, seeds, seed, invariant) = line.unwrap_or_else(|| panic!("{mutant:?} is not in the table"));
        assert_eq!(noticed(None, *seed), None, "seed {seed} breaks without a mistake");
        if noticed(Some(*mutant), *seed).as_ref() == Some(invariant) {
            continue;
        }
        if *seeds > RARE {
            println!("the table is out of date: look for {mutant:?} with `cargo sim --mutant {mutant:?}`");
            continue;
        }
        // What a seed does changes with everything that asks for randomness: look for another one.
        let found = survey(*mutant, seeds * 4 + 200, 2);
        let found = found.unwrap_or_else(|| panic!("{mutant:?} was not noticed in {} seeds", seeds * 4 + 200));
        println!("the table is out of date: {mutant:?} is noticed by seed {} now, not {seed}", found.seed);
    }
}

#[test]
fn the_table_is_of_what_there_is() {
    let lines = TABLE.lines().skip(2).filter(|line| !line.is_empty());
    for line in lines {
        assert!(read(line).is_some(), "{line}");
    }
}
