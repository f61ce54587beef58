//! How hard each known mistake is to notice, as a table that the tests go by.

use crate::batch::{Batch, Summary};
use crate::ledger::Invariant;
use lambda_lock::mistakes::{ALL, Mistake};
use std::collections::BTreeMap;

/// What is known of one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Which one.
    pub mistake: Mistake,
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
pub fn survey(mistake: Mistake, seeds: u64, threads: usize) -> Option<Known> {
    let batch = Batch { base: 0, seeds, threads, mistake: Some(mistake), stop: Some(ENOUGH) };
    let Summary { seeds, violations, .. } = batch.run(|_| {});
    let (seed, first) = violations.first()?;
    let mut often: BTreeMap<Invariant, usize> = BTreeMap::new();
    for (_, violation) in &violations {
        *often.entry(violation.invariant).or_default() += 1;
    }
    let mostly = often.into_iter().max_by_key(|(_, often)| *often)?.0;
    let rate = violations.len() as f64 / seeds as f64;
    let needed = if rate >= 0.95 { 1.0 } else { 0.05_f64.ln() / (1.0 - rate).ln() };
    Some(Known { mistake, seeds: needed.ceil() as u64, seed: *seed, invariant: first.invariant, mostly })
}

const HEAD: &str =
    "| mistake | seeds for 95 % | mostly breaks | of | a seed | which breaks |\n|---|--:|---|---|--:|---|\n";

/// The table, as Markdown, easiest first: what is `known`, and of an `earlier` table what it says of others.
pub fn table(known: &[Known], earlier: &str) -> String {
    let is_other = |line: &&str| read(line).is_some_and(|(other, ..)| known.iter().all(|known| known.mistake != other));
    let mut lines: Vec<String> = earlier.lines().filter(is_other).map(|line| format!("{line}\n")).collect();
    lines.extend(known.iter().map(line));
    lines.sort_by_key(|line| read(line.trim_end()).map(|(_, seeds, ..)| seeds));
    HEAD.to_owned() + &lines.concat()
}

fn line(known: &Known) -> String {
    let Known { mistake, seeds, seed, invariant, mostly } = known;
    let promise = mostly.promise();
    format!("| {mistake:?} | {seeds} | {mostly:?} | {promise} | {seed} | {invariant:?} |\n")
}

/// A line of the table: the mistake, how many seeds it takes, a seed, and what that breaks.
pub fn read(line: &str) -> Option<(Mistake, u64, u64, String)> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, mistake, seeds, _, _, seed, invariant, _] = cells.as_slice() else { return None };
    let mistake = ALL.iter().copied().find(|known| format!("{known:?}") == *mistake)?;
    Some((mistake, seeds.parse().ok()?, seed.parse().ok()?, (*invariant).to_owned()))
}
