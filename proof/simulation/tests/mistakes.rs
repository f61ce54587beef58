//! Each known mistake must be noticed by the seed in the table.

#![allow(clippy::print_stdout, reason = "what noticed which mistake should be seen")]

use lambda_lock_protocol::mistakes::{self, Mistake, ONLY_FOR_THE_MODEL};
use lambda_lock_simulation::{Invariant, Options, noticed_by, read, run};

const TABLE: &str = include_str!("../mistakes.md");

/// For mistakes that take more seeds than this, a new seed is searched only on demand.
const RARE: u64 = 20_000;

/// The number of mistakes that may be so rare.
const RARE_ONES: usize = 3;

fn noticed(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    mistakes::set(mistake);
    let violation = run(seed, Options::default()).violation;
    mistakes::set(None);
    violation.map(|violation| format!("{:?}", violation.invariant))
}

/// Searches for a new seed, because a seed's run changes with every change in the use of random numbers.
fn search(mistake: Mistake, seeds: u64, written_down: u64) {
    if seeds > RARE {
        println!(
            "{mistake:?}: seed {written_down} does NOT notice it any more, and it is too rare to search here. Run:"
        );
        println!("    cargo sim --mistake {mistake:?} --seeds {}", seeds * 4);
        return;
    }
    let most = seeds * 4 + 200;
    let found = noticed_by(mistake, most, 2);
    assert!(found.is_some(), "{mistake:?} was not noticed in {most} seeds");
    let Some((seed, invariant)) = found else { return };
    assert_ne!(invariant, Invariant::WellFormed, "{mistake:?} is not tested, because DynamoDB refuses its request");
    println!("{mistake:?}: seed {written_down} does not notice it any more, but seed {seed} does ({invariant:?})");
}

#[test]
fn every_known_mistake_is_noticed() {
    let known: Vec<_> = TABLE.lines().filter_map(read).collect();
    for mistake in mistakes::ALL.iter().filter(|mistake| !ONLY_FOR_THE_MODEL.contains(mistake)) {
        let line = known.iter().find(|(known, ..)| known == mistake);
        let (_, seeds, seed, invariant) = line.unwrap_or_else(|| panic!("{mistake:?} is not in the table"));
        assert_eq!(noticed(None, *seed), None, "seed {seed} has a violation without a mistake");
        assert_ne!(invariant, "WellFormed", "{mistake:?} is not tested, because DynamoDB refuses its request");
        if noticed(Some(*mistake), *seed).as_ref() == Some(invariant) {
            println!("{mistake:?}: noticed by seed {seed} ({invariant})");
        } else {
            search(*mistake, *seeds, *seed);
        }
    }
}

#[test]
fn the_table_has_one_line_for_each_mistake() {
    let lines: Vec<_> = TABLE.lines().skip(2).filter(|line| !line.is_empty()).collect();
    for line in &lines {
        assert!(read(line).is_some(), "{line}");
    }
    assert_eq!(lines.len(), mistakes::ALL.len() - ONLY_FOR_THE_MODEL.len(), "one line for each mistake");
    let rare = lines.iter().filter_map(|line| read(line)).filter(|(_, seeds, ..)| *seeds > RARE).count();
    assert!(rare <= RARE_ONES, "{rare} mistakes take more than {RARE} seeds");
}
