//! P5 for transactions: applied once or not at all, and what is said of them is so.

use super::{Invariant, Ledger, Written};
use crate::plan::Plan;

/// A transaction of a caller's.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    granted: usize,
    pub(crate) applied: usize,
    /// It was said that it was not applied.
    denied: bool,
    /// It was refused for what can change while the lock stays ours: the caller's own writes, or a row that is no
    /// lock record until somebody repairs it. What P5 excepts is a late copy, for which it has changed.
    cancelled: bool,
    by_copy: bool,
    /// Its caller knows what became of it.
    said: bool,
}

impl Ledger {
    pub(crate) fn begin_commit(&mut self, granted: usize) -> usize {
        self.commits.push(Commit { granted, applied: 0, denied: false, cancelled: false, by_copy: false, said: false });
        self.commits.len() - 1
    }

    /// Whether nothing was said of this one yet.
    pub(crate) fn is_open(&self, number: usize) -> bool {
        !self.commits[number].said
    }

    /// A transaction with this write was applied.
    pub(crate) fn committed(&mut self, plan: &Plan, number: usize, written: Written, cancelled: bool) {
        self.counts.commits += 1;
        let newer = self.is_newer(plan, written);
        let commit = &mut self.commits[number];
        if written.copy && cancelled && !newer {
            // A copy of one that was cancelled: not until the lock is renewed or released can it be refused.
            self.counts.commits_by_late_copies += 1;
            commit.by_copy = true;
            let granted = commit.granted;
            return self.effect(plan, granted, false);
        }
        commit.applied += 1;
        let (granted, again) = (commit.granted, commit.applied > 1);
        commit.by_copy = written.copy;
        // Until the lock is renewed or released, which says that no such copy is to be applied any more.
        let excepted = written.copy && commit.cancelled && !newer;
        let denied = commit.denied && !excepted;
        self.counts.commits_by_late_copies += u64::from(commit.denied && excepted);
        if (again || denied) && !self.is_haunted(written.key) {
            let what = format!("applied {}", if again { "twice" } else { "after it was said not to be" });
            self.violate(Invariant::CommittedOnce, what);
        }
        self.effect(plan, granted, false);
    }

    /// What was said of a transaction: that it was applied, or that it was not and never will be.
    pub(crate) fn said_committed(&mut self, number: usize, said: bool, cancelled: bool) {
        let commit = &mut self.commits[number];
        let granted = commit.granted;
        commit.denied = !said;
        commit.said = true;
        commit.cancelled = cancelled;
        let so = (commit.applied > 0) == said || commit.by_copy;
        if !so && !self.is_haunted(self.grants[granted].key) {
            let what = format!("applied {} times, said: {said}", self.commits[number].applied);
            self.violate(Invariant::CommittedIsSo, what);
        }
    }
}
