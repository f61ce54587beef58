//! The ledger: who was granted what, and when. Each promise has a file that checks it.

mod commits;
mod exclusion;
mod fencing;
mod frozen;
mod ghosts;
mod invariant;
mod once;

use crate::clocks::Nanos;
use crate::counts::Counts;
use crate::plan::Plan;
use crate::table::Mark;
use commits::Commit;
use fencing::Resource;
pub use invariant::{Invariant, Violation};
use lambda_lock_protocol::Grant;

pub(crate) type ProcessId = usize;

/// Additional attributes, sorted by name.
pub(crate) type Attributes = Vec<(&'static str, String)>;

/// A millisecond.
const MILLI: Nanos = 1_000_000;

/// Stands for a token that no grant may get.
const NONSENSE: u64 = u64::MAX;

pub(crate) type CallId = usize;

/// A grant that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    /// The row's token no longer accounts for grants before this one.
    forgotten: usize,
    pub(crate) key: usize,
    /// `None`: a grant of another client.
    pub(crate) grant: Option<Grant>,
    pub(crate) token: u64,
    /// Counted from a value that is not a number of grants, so no grant may get this token.
    pub(super) nonsense: bool,
    pub(crate) call: CallId,
    /// Grants that were reclaimed from each other have the same holder.
    lineage: usize,
    /// The first grant of an unbroken chain of rows up to this grant. Within the chain the row's own token grows,
    /// whatever the clocks show.
    unbroken: usize,
    begun: Nanos,
    applied: Nanos,
    /// Applied late, in one of the two ways that the protocol cannot refuse. P5 excepts it.
    pub(crate) ghost: bool,
    /// Applied again by a late copy of its Claim that outlived its row.
    resurrected: bool,
    /// The request of the grant.
    pub(crate) slot: usize,
    /// Ended by a release, or with its row. Other copies of the guard may not know it.
    ended: bool,
    /// When one of its guards was valid last.
    said_mine: Option<Nanos>,
    /// When a work under one of its guards was polled last.
    worked: Option<Nanos>,
    /// When the lease of its last write is over for everybody.
    until: Nanos,
    pub(crate) renewed: Nanos,
    /// The caller named the owner.
    named: bool,
    /// The payload of the row at the time of the grant.
    pub(crate) data: Option<Vec<u8>>,
}

impl Granted {
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }
}

/// The living holders that an acquire may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaims {
    Nobody,
    /// Holders with its own owner.
    Owner,
    /// The holder of this grant, and later ones of the same owner.
    Grant(Grant),
}

/// The kind of a call, and what it may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Acquire {
        owner: String,
        /// The caller named the owner, so everybody with the same name is the same holder.
        named: bool,
        reclaims: Reclaims,
    },
    /// A call for this grant with this token.
    Hold(Grant, u64),
    Release {
        grant: Grant,
        token: u64,
        later_of: Option<String>,
    },
    Workflow(String),
    /// An operator breaks this version.
    Break(String),
    /// An operator freezes the lock, or thaws it.
    Freeze,
    Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Running,
    /// Granted, renewed or released, as requested.
    Done,
    /// Definitely not done.
    Refused,
    /// Unknown, cancelled or crashed.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    pub(crate) ended: Ended,
    pub(crate) started: Nanos,
    /// When the last pause of its process, or the last change of its clocks, ended.
    pub(crate) disturbed: Option<Nanos>,
    /// How long its process was paused meanwhile.
    pub(crate) paused: Nanos,
    pub(crate) sent_release: bool,
    /// One of its writes was applied.
    pub(crate) applied: bool,
    /// The lock's own condition held for its last transaction.
    pub(crate) owned: bool,
    /// It does not look at the line.
    pub(crate) out_of_turn: bool,
    /// Its ticket is from before the counters began again.
    pub(crate) lost_its_place: bool,
    /// A response has shown that the lock is free, and that it is this call's turn. It has not asked for the lock since.
    pub(crate) may_come: bool,
    /// One of its requests had a fault.
    pub(crate) faulted: bool,
    /// One of its requests had a fault, and it was not for a ticket.
    pub(crate) unclear: bool,
    /// How often it was refused.
    pub(crate) refusals: u32,
    /// The payload that it is to leave in the row, if it changes the payload.
    pub(crate) wants: Option<Vec<u8>>,
    /// The additional attributes of its grant.
    pub(crate) attributes: Attributes,
    /// Only its transaction writes the payload.
    pub(crate) commits: bool,
    /// The last row that a response showed to it.
    pub(crate) shown: Option<Mark>,
}

impl Call {
    /// The living holders that it may replace, if it acquires.
    pub(crate) fn reclaims(&self) -> Option<Reclaims> {
        match self.kind {
            CallKind::Acquire { reclaims, .. } => Some(reclaims),
            _ => None,
        }
    }

    /// Whether this call acquires this row even from a living holder. A row that the call itself wrote does not count.
    pub(crate) fn takes(&self, row: &Mark) -> bool {
        let CallKind::Acquire { owner, reclaims, .. } = &self.kind else { return false };
        let same_owner = row.owner == *owner;
        row.own.is_some_and(|own| match reclaims {
            Reclaims::Nobody => false,
            Reclaims::Owner => same_owner,
            Reclaims::Grant(grant) => same_owner || own.grant == *grant,
        })
    }
}

/// A request as the ledger sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) key: usize,
    pub(crate) call: CallId,
    pub(crate) slot: usize,
    /// The sender read its clocks for it at this time at the earliest,
    pub(crate) begun: Nanos,
    /// and at this time at the latest. The process may be paused in between.
    pub(crate) read: Nanos,
    pub(crate) now: Nanos,
    pub(crate) copy: bool,
    /// Its sender does not wait for it, or no longer waits.
    pub(crate) late: bool,
    /// The original was refused, and its sender knows that.
    pub(crate) refused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) grants: Vec<Granted>,
    pub(crate) calls: Vec<Call>,
    /// The grant on each row.
    pub(crate) current: Vec<Option<usize>>,
    /// The writer of each row read its clocks at this time at the earliest.
    written: Vec<Nanos>,
    /// For each row: the token does not account for grants before this one, because somebody wrote the row by hand.
    by_hand: Vec<usize>,
    resource: Vec<Resource>,
    pub(crate) commits: Vec<Commit>,
    /// For each row: when the last freeze or thaw that reported success had begun.
    pub(super) last_freeze: Vec<Nanos>,
    /// The results of idempotent work, by key.
    pub(crate) results: Vec<Option<String>>,
    pub(crate) counts: Counts,
    pub(crate) violation: Option<Violation>,
}

impl Ledger {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            current: vec![None; keys],
            written: vec![0; keys],
            by_hand: vec![0; keys],
            resource: vec![Resource::default(); keys],
            last_freeze: vec![0; keys],
            results: vec![None; keys],
            ..Self::default()
        }
    }

    pub(crate) fn violate(&mut self, invariant: Invariant, what: String) {
        self.violation.get_or_insert(Violation { invariant, what });
    }

    pub(crate) fn find(&self, key: usize, grant: Grant, token: u64) -> Option<usize> {
        self.grants.iter().rposition(|one| one.key == key && one.grant == Some(grant) && one.token == token)
    }

    /// One of our writes was applied.
    pub(crate) fn applied(&mut self, plan: &Plan, written: Written, before: Option<&Mark>, after: &Mark) {
        if written.copy {
            self.counts.duplicates += 1;
            let ended = self.current[written.key].is_some_and(|current| self.grants[current].ended);
            self.counts.duplicates_after_release += u64::from(ended);
        }
        if self.calls[written.call].kind == CallKind::Freeze {
            return self.frozen(plan, written, before, after);
        }
        self.stays_as_frozen_as_it_was(before, after);
        let Some(own) = after.own else { return self.settled(written, before, after) };
        // A token that is counted from nonsense is not a token, so no grant may get it.
        let token = after.token.unwrap_or(NONSENSE);
        self.counts.tokens_of_nonsense += u64::from(after.token.is_none());
        let same =
            |mark: &&Mark| mark.own.is_some_and(|version| version.grant == own.grant) && mark.token == after.token;
        match before.filter(same) {
            None => self.granted(plan, written, (own.grant, token, after.lease), before),
            Some(before) if after.released => self.released(written, before, after),
            Some(before) if before.released => {
                self.granted(plan, written, (own.grant, token, after.lease), Some(before))
            }
            Some(before) => self.renewed(written, before, after),
        }
    }

    /// Somebody took a ticket, or gave it up.
    pub(crate) fn in_line(&mut self, before: Option<&Mark>, after: &Mark) {
        let expected = before.map(|before| Mark {
            last_ticket: after.last_ticket,
            served_ticket: after.served_ticket,
            left: after.left.clone(),
            ..before.clone()
        });
        if expected.as_ref() != Some(after) {
            self.violate(Invariant::OwnRowOnly, format!("a place in line made {after:?} of {before:?}"));
        }
    }

    fn granted(
        &mut self,
        plan: &Plan,
        written: Written,
        (grant, token, lease): (Grant, u64, u64),
        before: Option<&Mark>,
    ) {
        let lease = lease * MILLI;
        let Written { key, call, begun, now, .. } = written;
        self.counts.grants += 1;
        let forgotten = self.forgotten(plan, written, before).max(self.by_hand[key]);
        let unbroken = self.unbroken(key, before).max(self.by_hand[key]);
        let nonsense = token == NONSENSE;
        if !nonsense {
            self.token_grows(plan, written, (grant, token), forgotten, unbroken);
        }
        let ghost = written.late && self.cannot_be_refused(plan, written, before);
        let again = self.grants.iter().any(|one| one.grant == Some(grant));
        self.after_its_call(written, grant, ghost);
        self.not_over_a_release(written, grant, ghost, before);
        self.not_while_frozen(call, before);
        self.not_after_its_result(key, grant);
        let kind = self.calls[call].kind.clone();
        let previous = self.current[key].map(|previous| &self.grants[previous]);
        let alive = previous.is_some_and(|previous| !previous.ended);
        let CallKind::Acquire { owner, named, reclaims } = kind else {
            return self.violate(Invariant::OwnRowOnly, format!("a grant {grant} was written by {kind:?}"));
        };
        let of_its_line = match reclaims {
            Reclaims::Grant(grant) => {
                let earlier = self.grants.iter().rfind(|one| one.grant == Some(grant) && one.key == key);
                earlier.map(|earlier| earlier.lineage) == previous.map(|previous| previous.lineage)
            }
            Reclaims::Owner | Reclaims::Nobody => false,
        };
        let same_holder = of_its_line || previous.is_some_and(|previous| previous.named);
        let named = match reclaims {
            Reclaims::Grant(_) => previous.is_some_and(|previous| previous.named),
            Reclaims::Owner | Reclaims::Nobody => named,
        };
        let reclaims = reclaims != Reclaims::Nobody && same_holder;
        // The owner in the request is used, because somebody may have changed the name on the row since it was seen.
        let granted_to = previous.and_then(|previous| match &self.calls.get(previous.call)?.kind {
            CallKind::Acquire { owner, .. } => Some(owner),
            _ => None,
        });
        let same_name = |before: &Mark| before.owner == owner || granted_to == Some(&owner);
        let inherited = previous.is_some() && reclaims && before.is_some_and(|before| of_its_line || same_name(before));
        let lineage = previous.filter(|_| inherited).map_or(self.grants.len(), |previous| previous.lineage);
        let of_peer = previous.is_some_and(|previous| previous.grant.is_none());
        self.counts.reclaims += u64::from(inherited && alive);
        self.counts.takeovers += u64::from(!inherited && alive);
        self.counts.takeovers_of_peers += u64::from(alive && of_peer);
        self.counts.claims_applied_twice += u64::from(again);
        if let (true, Some(previous)) = (inherited, self.current[key]) {
            // Copies of the earlier grant belong to the same holder.
            self.grants[previous].ended = true;
        }
        self.push(Granted {
            forgotten,
            key,
            grant: Some(grant),
            token,
            nonsense,
            call,
            lineage,
            unbroken,
            begun,
            applied: now,
            ghost,
            resurrected: ghost && again && before.is_none(),
            slot: written.slot,
            ended: false,
            said_mine: None,
            worked: None,
            until: written.read + lease,
            renewed: now,
            named,
            data: None,
        });
    }

    /// Another client was granted the lock.
    pub(crate) fn granted_to_peer(&mut self, written: Written) {
        let Written { key, call, begun, now, .. } = written;
        let alive = self.current[key].is_some_and(|previous| !self.grants[previous].ended);
        self.counts.takeovers_by_peers += u64::from(alive);
        let lineage = self.grants.len();
        self.push(Granted {
            forgotten: 0,
            key,
            grant: None,
            token: 0,
            nonsense: false,
            call,
            lineage,
            unbroken: lineage,
            begun,
            applied: now,
            ghost: false,
            resurrected: false,
            slot: written.slot,
            ended: false,
            said_mine: None,
            worked: None,
            until: Nanos::MAX,
            renewed: now,
            named: true,
            data: None,
        });
    }

    /// Somebody wrote the row by hand.
    pub(crate) fn written_by_hand(&mut self, key: usize, ends_at_ms: bool) {
        self.by_hand[key] = self.grants.len();
        if ends_at_ms {
            // The row no longer shows when the replaced write was requested.
            self.written[key] = 0;
        }
    }

    pub(crate) fn released_by_peer(&mut self, key: usize) {
        if let Some(current) = self.current[key] {
            self.grants[current].ended = true;
        }
    }

    fn push(&mut self, granted: Granted) {
        self.current[granted.key] = Some(self.grants.len());
        self.written[granted.key] = granted.begun;
        self.grants.push(granted);
    }

    /// Somebody else deleted the row.
    pub(crate) fn row_is_gone(&mut self, key: usize) {
        self.counts.rows_deleted += 1;
        if let Some(current) = self.current[key].take() {
            self.grants[current].ended = true;
        }
    }
}
