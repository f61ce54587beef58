//! P5 for transactions: each is applied once or not at all, and the reported outcome is correct.

use super::{Invariant, Ledger, Written};
use crate::plan::Plan;

/// One of the caller's transactions.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    granted: usize,
    pub(crate) applied: usize,
    /// The caller was told that it was not applied.
    denied: bool,
    /// It was refused for a reason that can change while the lock is still held: the caller's own writes, or a row that
    /// is no lock record until it is repaired. If the reason has changed, a late copy may be applied. P5 excepts that
    /// copy.
    cancelled: bool,
    by_copy: bool,
    /// The caller knows the outcome.
    said: bool,
}

impl Ledger {
    pub(crate) fn begin_commit(&mut self, granted: usize) -> usize {
        self.commits.push(Commit { granted, applied: 0, denied: false, cancelled: false, by_copy: false, said: false });
        self.commits.len() - 1
    }

    /// Whether the outcome was not reported yet.
    pub(crate) fn is_open(&self, number: usize) -> bool {
        !self.commits[number].said
    }

    /// A transaction with this write was applied.
    pub(crate) fn committed(&mut self, plan: &Plan, number: usize, written: Written, cancelled: bool) {
        self.counts.commits += 1;
        let newer = self.is_newer(plan, written);
        let commit = &mut self.commits[number];
        if written.copy && cancelled && !newer {
            // A late copy of a cancelled transaction can be refused only after the lock was renewed or released.
            self.counts.commits_by_late_copies += 1;
            commit.by_copy = true;
            let granted = commit.granted;
            return self.effect(plan, granted, false);
        }
        commit.applied += 1;
        let (granted, again) = (commit.granted, commit.applied > 1);
        commit.by_copy = written.copy;
        // The exception ends when the lock is renewed or released. After that no copy may be applied.
        let excepted = written.copy && commit.cancelled && !newer;
        let denied = commit.denied && !excepted;
        self.counts.commits_by_late_copies += u64::from(commit.denied && excepted);
        if (again || denied) && !self.is_haunted(written.key) {
            let what = format!("applied {}", if again { "twice" } else { "after it was said not to be" });
            self.violate(Invariant::CommittedOnce, what);
        }
        self.effect(plan, granted, false);
    }

    /// The caller was told that a transaction was applied, or that it was not applied and never will be.
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
