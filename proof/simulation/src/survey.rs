//! Measures how many seeds it takes to notice each known mistake. The tests use the resulting table.

use crate::batch::{Batch, Summary};
use crate::ledger::Invariant;
use crate::plan::FIRST_CROWD;
use lambda_lock_protocol::mistakes::{ALL, Mistake};
use std::collections::BTreeMap;

/// What is known about one mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The mistake.
    pub mistake: Mistake,
    /// The number of seeds after which it was noticed with a probability of 95 %.
    pub seeds: u64,
    /// A seed that notices it.
    pub seed: u64,
    /// What it breaks first in that seed.
    pub invariant: Invariant,
    /// What it breaks most often.
    pub mostly: Invariant,
}

/// Other seeds notice these seldom or never: few of their callers are far behind in line, and none sleeps between its calls.
const IN_CROWDS: [Mistake; 9] = [
    Mistake::ServedGoesBack,
    Mistake::GraceTooShort,
    Mistake::SleeperLeaves,
    Mistake::LostCountersKept,
    Mistake::OverdueWaits,
    Mistake::DesertedIgnoresSkew,
    Mistake::SkipCountsHeldTime,
    Mistake::TimeBeforeTicketCounts,
    Mistake::LostTurnsKept,
];

/// A number of violations that is large enough to estimate their rate.
const ENOUGH: usize = 40;

/// Looks for one mistake in at most `seeds` seeds.
pub fn survey(mistake: Mistake, seeds: u64, threads: usize) -> Option<Known> {
    let Summary { seeds, violations, .. } = batch(mistake, seeds, threads, ENOUGH);
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

/// A seed that notices the mistake, and what it breaks: the first one that is found, in at most `seeds` seeds.
pub fn noticed_by(mistake: Mistake, seeds: u64, threads: usize) -> Option<(u64, Invariant)> {
    batch(mistake, seeds, threads, 1).violations.first().map(|(seed, violation)| (*seed, violation.invariant))
}

fn batch(mistake: Mistake, seeds: u64, threads: usize, enough: usize) -> Summary {
    let base = if IN_CROWDS.contains(&mistake) { FIRST_CROWD } else { 0 };
    Batch { base, seeds, threads, mistake: Some(mistake), stop: Some(enough) }.run(|_| {})
}

const HEAD: &str =
    "| mistake | seeds for 95 % | mostly breaks | of | a seed | which breaks |\n|---|--:|---|---|--:|---|\n";

/// The table as Markdown, sorted by the number of seeds. Lines of `earlier` stay for mistakes that are not in `known`.
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

/// Reads a line of the table: the mistake, the number of seeds, a seed that notices it, and what that seed breaks.
pub fn read(line: &str) -> Option<(Mistake, u64, u64, String)> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, mistake, seeds, _, _, seed, invariant, _] = cells.as_slice() else { return None };
    let mistake = ALL.iter().copied().find(|known| format!("{known:?}") == *mistake)?;
    Some((mistake, seeds.parse().ok()?, seed.parse().ok()?, (*invariant).to_owned()))
}
