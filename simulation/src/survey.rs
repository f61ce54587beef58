//! How hard each known mistake is to notice, as a table that the tests go by.

use crate::batch::{Batch, Summary};
use crate::ledger::Invariant;
use lambda_lock::mutants::{ALL, Mutant};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What is known of one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Which one.
    pub mutant: Mutant,
    /// After so many seeds it has been noticed with a probability of 95 %.
    pub seeds: u64,
    /// A seed that notices it.
    pub seed: u64,
    /// What it breaks first in that seed.
    pub invariant: Invariant,
    /// What it breaks most often.
    pub mostly: Invariant,
}

/// Enough violations to know how frequent they are.
const ENOUGH: usize = 40;

/// Looks for one mistake in up to so many seeds.
pub fn survey(mutant: Mutant, seeds: u64, threads: usize) -> Option<Known> {
    let batch = Batch { base: 0, seeds, threads, mutant: Some(mutant), stop: Some(ENOUGH) };
    let Summary { seeds, violations, .. } = batch.run(|_| {});
    let (seed, first) = violations.first()?;
    let mut often: BTreeMap<Invariant, usize> = BTreeMap::new();
    for (_, violation) in &violations {
        *often.entry(violation.invariant).or_default() += 1;
    }
    let mostly = often.into_iter().max_by_key(|(_, often)| *often)?.0;
    let rate = violations.len() as f64 / seeds as f64;
    let needed = if rate >= 0.95 { 1.0 } else { 0.05_f64.ln() / (1.0 - rate).ln() };
    Some(Known { mutant, seeds: needed.ceil() as u64, seed: *seed, invariant: first.invariant, mostly })
}

/// The table, as Markdown.
pub fn table(known: &[Known]) -> String {
    let mut text = String::from(
        "| mistake | seeds for 95 % | mostly breaks | of | a seed | which breaks |\n|---|--:|---|---|--:|---|\n",
    );
    for Known { mutant, seeds, seed, invariant, mostly } in known {
        let promise = mostly.promise();
        let _ = writeln!(text, "| {mutant:?} | {seeds} | {mostly:?} | {promise} | {seed} | {invariant:?} |");
    }
    text
}

/// A line of the table: the mistake, how many seeds it takes, a seed, and what that breaks.
pub fn read(line: &str) -> Option<(Mutant, u64, u64, String)> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, mutant, seeds, _, _, seed, invariant, _] = cells.as_slice() else { return None };
    let mutant = ALL.iter().copied().find(|known| format!("{known:?}") == *mutant)?;
    Some((mutant, seeds.parse().ok()?, seed.parse().ok()?, (*invariant).to_owned()))
}
