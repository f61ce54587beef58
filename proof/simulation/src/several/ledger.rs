//! What happened, and what must hold.

use super::table::version;
use super::world::Nanos;
use crate::counts::Counts;
use crate::ledger::{Invariant, Violation};
use lambda_lock_protocol::{Grant, Holding, Item, Value, schema};

/// The grant on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grants {
    pub(super) key: usize,
    pub(super) grant: Option<Grant>,
}

/// A caller relies on a lock until then.
#[derive(Clone, Copy, Debug)]
struct Belief {
    process: usize,
    key: usize,
    grant: Grant,
    until: Nanos,
}

/// The caller's own writes of one commit.
#[derive(Clone, Debug)]
struct Commit {
    /// The grant and the keys that it is made under.
    grants: Vec<Grants>,
    applied: u32,
    /// A late copy of the request applied it.
    by_copy: bool,
    reported: Option<Reported>,
}

/// What the caller was told of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reported {
    Applied,
    NotApplied,
    /// Not applied because of the caller's own writes, or for now. A late copy can still be applied, as the documentation
    /// of a commit says.
    Cancelled,
}

impl Commit {
    fn is_right(&self) -> bool {
        match self.reported {
            None => self.applied <= 1,
            Some(Reported::Applied) => self.applied == 1,
            Some(Reported::NotApplied) => self.applied == 0,
            Some(Reported::Cancelled) => self.applied == 0 || self.applied == 1 && self.by_copy,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) counts: Counts,
    pub(super) violation: Option<Violation>,
    /// Each grant that was applied: key, grant, token, and whether a late copy did it.
    granted: Vec<(usize, Grant, u64, bool)>,
    last_token: Vec<u64>,
    /// For each row: whether it is held, and since when that is so.
    held: Vec<(bool, Nanos)>,
    beliefs: Vec<Belief>,
    commits: Vec<Commit>,
    /// Each guard: key, grant, token and process. A row of its transaction may become visible after the guard exists.
    guards: Vec<(usize, Grant, u64, usize)>,
}

impl Ledger {
    pub(super) fn new(keys: usize) -> Self {
        Self { last_token: vec![0; keys], held: vec![(false, 0); keys], ..Self::default() }
    }

    pub(super) fn violate(&mut self, invariant: Invariant, what: String) {
        self.violation.get_or_insert(Violation { invariant, what });
    }

    /// A Claim or a Take was applied to this row.
    pub(super) fn granted(&mut self, key: usize, row: Option<&Item>, copy: bool) {
        let Some(row) = row else { return };
        let (Some(version), Some(Value::N(token))) = (version(row), row.get(schema::TOKEN)) else { return };
        let token: u64 = token.parse().unwrap_or_default();
        self.counts.grants += 1;
        if token <= self.last_token[key] {
            let what = format!("key {key}: {token} after {}", self.last_token[key]);
            self.violate(Invariant::TokenGrows, what);
        }
        self.last_token[key] = token;
        self.granted.push((key, version.grant, token, copy));
    }

    pub(super) fn is_held(&mut self, key: usize, held: bool, now: Nanos) {
        if self.held[key].0 != held {
            self.held[key] = (held, now);
        }
    }

    /// Whether the row was free for all of the time since then.
    pub(super) fn was_free_since(&self, key: usize, since: Nanos) -> bool {
        !self.held[key].0 && self.held[key].1 < since
    }

    /// A caller relies on these locks for this long.
    pub(super) fn believes(&mut self, process: usize, holdings: &[(usize, &Holding)], now: Nanos, until: Nanos) {
        for (key, holding) in holdings {
            let grant = holding.newest.grant;
            self.beliefs.retain(|belief| !(belief.key == *key && belief.grant == grant && belief.process == process));
            let other = self.beliefs.iter().find(|one| one.key == *key && one.grant != grant && one.until > now);
            if let Some(other) = other.copied().filter(|_| until > now) {
                let what = format!("key {key}: process {process} and process {} at {now}", other.process);
                self.violate(Invariant::OneHolder, what);
            }
            self.beliefs.push(Belief { process, key: *key, grant, until });
            self.guards.push((*key, grant, holding.token, process));
        }
    }

    /// The caller does not rely on its locks any more.
    pub(super) fn gives_up(&mut self, process: usize) {
        self.beliefs.retain(|belief| belief.process != process);
    }

    pub(super) fn begins_commit(&mut self, grants: Vec<Grants>) -> usize {
        self.commits.push(Commit { grants, applied: 0, by_copy: false, reported: None });
        self.commits.len() - 1
    }

    /// A transaction with the caller's own writes was applied, under these grants.
    pub(super) fn committed(&mut self, number: usize, held: &[Grants], copy: bool) {
        let commit = &mut self.commits[number];
        commit.applied += 1;
        commit.by_copy = copy;
        let (is_right, what) = (commit.is_right(), format!("commit {number}: {commit:?}"));
        let is_ours = commit.grants.iter().all(|ours| held.contains(ours));
        self.counts.set_commits += 1;
        if !is_right {
            self.violate(Invariant::CommittedOnce, what);
        }
        if !is_ours {
            let what = format!("commit {number} was applied although a lock of it was not held: {held:?}");
            self.violate(Invariant::EffectsInOrder, what);
        }
    }

    /// The caller was told what became of a commit.
    pub(super) fn reports(&mut self, number: usize, reported: Reported) {
        let commit = &mut self.commits[number];
        commit.reported = Some(reported);
        let (is_right, what) = (commit.is_right(), format!("commit {number}: {commit:?}"));
        if !is_right {
            self.violate(Invariant::CommittedIsSo, what);
        }
    }

    /// Whether a late copy made this grant.
    pub(super) fn is_ghost(&self, key: usize, grant: Grant) -> bool {
        self.granted.iter().any(|(of, granted, _, copy)| *of == key && *granted == grant && *copy)
    }

    /// Whether this grant followed one that a late copy made: somebody took what nobody knew to hold.
    pub(super) fn follows_ghost(&self, key: usize, grant: Grant) -> bool {
        let of_key: Vec<_> = self.granted.iter().filter(|(of, ..)| *of == key).collect();
        of_key.windows(2).any(|pair| pair[0].3 && pair[1].1 == grant)
    }

    pub(super) fn ends(&mut self) {
        let was_granted = |(key, grant, token, _): &(usize, Grant, u64, usize)| {
            self.granted.iter().any(|(of, granted, with, _)| (of, granted, with) == (key, grant, token))
        };
        if let Some((key, _, _, process)) = self.guards.iter().find(|guard| !was_granted(guard)).copied() {
            self.violate(Invariant::GuardMatchesRow, format!("key {key} was not granted to process {process}"));
        }
        let wrong = self.commits.iter().position(|commit| !commit.is_right());
        if let Some(number) = wrong {
            self.violate(Invariant::CommittedIsSo, format!("commit {number} at the end: {:?}", self.commits[number]));
        }
    }
}
