//! The books: who was granted what and when, and what must never be found in them.

use crate::clocks::Nanos;
use crate::counts::Counts;
use crate::plan::Plan;
use crate::table::Mark;
use lambda_lock::protocol::Grant;
use std::fmt;

pub(crate) type ProcessId = usize;
pub(crate) type CallId = usize;

/// A promise that was broken: which one, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant.
    pub invariant: Invariant,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.name(), self.what)
    }
}

macro_rules! invariants {
    ($($name:ident: $text:literal, $promise:literal;)*) => {
        /// What must hold, whatever happens.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $(
                #[doc = $text]
                $name,
            )*
        }

        impl Invariant {
            /// In words.
            pub fn name(self) -> &'static str {
                match self { $(Invariant::$name => $text,)* }
            }

            /// The promise that it is part of.
            pub fn promise(self) -> &'static str {
                match self { $(Invariant::$name => $promise,)* }
            }
        }
    };
}

invariants! {
    TokenGrows: "a grant's token is larger than every earlier one's", "P1";
    EffectsInOrder: "a fenced resource never applies an older grant's effect after a newer one's", "P1";
    OneHolder: "at most one grant's guards say mine", "P2";
    NotHeldByOurselves: "never held by another when the row carries our grant", "P3";
    NotLostWhileOurs: "never lost while the row is ours", "P3";
    OwnRowOnly: "renew and release change no other grant's row", "P2";
    ExpiredStaysExpired: "a guard that ran out stays so until it is renewed", "P2";
    NoDelayedRelease: "a release ends no version that was asked for after it", "P2";
    LeaseNeverShrinks: "a renewal shortens neither the lease nor its end", "P2";
    NoGrantAfterRefusal: "no grant is applied for a call that ended definitively", "P5";
    GivenBack: "an acquire that was given up gives back what it got", "P3";
    ReleasedIsFree: "released is said only of a lock that is not held by the grant", "P5";
    GuardMatchesRow: "a guard stands for a grant that was applied, with its token", "P1";
    TakenOver: "a dead holder is replaced within its bound", "P4";
    ReturnsInTime: "a call returns by its budget plus one request timeout", "P4";
    CommittedOnce: "a transaction is applied once, and not after it was said not to be", "P5";
    CommittedIsSo: "what is said of a transaction is so", "P5";
    OnceIsOnce: "a work whose result is stored is not begun again, and its result stays", "idempotent work";
    SameSeedSameRun: "the same seed runs the same", "the simulation itself";
    SdkAgrees: "the real SDK and a DynamoDB engine give the same run", "the simulation itself";
}

/// A grant that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    /// Grants before this one are no longer remembered by the row's token.
    forgotten: usize,
    pub(crate) key: usize,
    /// `None`: of another client.
    pub(crate) grant: Option<Grant>,
    pub(crate) token: u64,
    pub(crate) call: CallId,
    /// Grants that were reclaimed from each other have one holder.
    lineage: usize,
    /// The first grant of an unbroken chain of rows up to this one: from each to the next the row's own token
    /// grows, whatever clocks say.
    unbroken: usize,
    begun: Nanos,
    applied: Nanos,
    /// Applied late, in one of the two ways in which the protocol cannot refuse it: what P5 excepts.
    pub(crate) ghost: bool,
    /// Applied again by a late copy of its Claim, which outlived its row.
    resurrected: bool,
    /// Which request it was.
    pub(crate) slot: usize,
    /// Ended by a release, or with its row: other copies of the guard may not know.
    ended: bool,
    /// When a guard of it said mine last.
    said_mine: Option<Nanos>,
    pub(crate) renewed: Nanos,
}

impl Granted {
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }
}

/// What kind of call sends a request, and what it may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Acquire {
        owner: String,
        reclaims: bool,
    },
    /// Of this grant with this token.
    Hold(Grant, u64),
    Release {
        grant: Grant,
        token: u64,
        later_of: Option<String>,
    },
    Workflow(String),
    Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Running,
    /// Granted, renewed, released: as was asked.
    Done,
    /// A definite no.
    Refused,
    /// Unknown, cancelled or crashed.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    pub(crate) ended: Ended,
    pub(crate) started: Nanos,
    /// Whether the process was paused, or its clocks set, meanwhile.
    pub(crate) disturbed: bool,
    pub(crate) sent_release: bool,
}

/// A request as the books see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) key: usize,
    pub(crate) call: CallId,
    pub(crate) slot: usize,
    /// Its sender's clocks were read for it no earlier than this,
    pub(crate) begun: Nanos,
    /// and no later than this: a process may be paused in between.
    pub(crate) read: Nanos,
    pub(crate) now: Nanos,
    pub(crate) copy: bool,
    /// Its sender does not wait for it, or not any more.
    pub(crate) late: bool,
    /// The original had been refused, and its sender knows it.
    pub(crate) refused: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) grants: Vec<Granted>,
    pub(crate) calls: Vec<Call>,
    /// The grant on each row.
    pub(crate) current: Vec<Option<usize>>,
    /// For what is on each row: its writer's clocks were read no earlier than this.
    written: Vec<Nanos>,
    resource: Vec<Resource>,
    pub(crate) commits: Vec<Commit>,
    /// The results of idempotent works, by key.
    pub(crate) results: Vec<Option<String>>,
    pub(crate) counts: Counts,
    pub(crate) violation: Option<Violation>,
}

/// A transaction of a caller's.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    granted: usize,
    pub(crate) applied: usize,
    /// It was said that it was not applied.
    denied: bool,
    /// The caller's own writes were refused: what P5 excepts is a late copy, for which they are not.
    cancelled: bool,
    by_copy: bool,
}

/// Something outside of the lock table that refuses smaller tokens.
#[derive(Clone, Debug, Default)]
struct Resource {
    token: u64,
    newest: Option<usize>,
}

impl Ledger {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            current: vec![None; keys],
            written: vec![0; keys],
            resource: vec![Resource::default(); keys],
            results: vec![None; keys],
            ..Self::default()
        }
    }

    pub(crate) fn violate(&mut self, invariant: Invariant, what: String) {
        self.violation.get_or_insert(Violation { invariant, what });
    }

    /// Whether the row was deleted, and a late copy of its Claim has brought it back: then what was said before
    /// is over.
    pub(crate) fn is_resurrected(&self, key: usize) -> bool {
        self.current[key].is_some_and(|current| self.grants[current].resurrected)
    }

    /// Whether a late copy of a Claim outlived the row: it brings back its grant, perhaps with its token, and
    /// fencing no longer tells it from the ones that followed. The crate's docs say so of deleting rows.
    fn is_haunted(&self, key: usize) -> bool {
        self.grants.iter().any(|one| one.key == key && one.resurrected)
    }

    pub(crate) fn find(&self, key: usize, grant: Grant, token: u64) -> Option<usize> {
        self.grants.iter().rposition(|one| one.key == key && one.grant == Some(grant) && one.token == token)
    }

    /// A write of ours was applied.
    pub(crate) fn applied(&mut self, plan: &Plan, written: Written, before: Option<&Mark>, after: Option<&Mark>) {
        if written.copy {
            self.counts.duplicates += 1;
            let ended = self.current[written.key].is_some_and(|current| self.grants[current].ended);
            self.counts.duplicates_after_release += u64::from(ended);
        }
        let Some(after) = after else { return self.deleted(written, before) };
        let Some(own) = after.own else { return self.settled(written, before, after) };
        let token = after.token.unwrap_or_default();
        let same =
            |mark: &&Mark| mark.own.is_some_and(|version| version.grant == own.grant) && mark.token == after.token;
        match before.filter(same) {
            None => self.granted(plan, written, own.grant, token, before),
            Some(before) if after.released => self.released(written, before, after),
            Some(before) if before.released => self.granted(plan, written, own.grant, token, Some(before)),
            Some(before) => self.renewed(written, before, after),
        }
    }

    /// An idempotent work has its result.
    fn settled(&mut self, written: Written, before: Option<&Mark>, after: &Mark) {
        let Some(before) = before.filter(|before| before.version != after.version) else { return };
        self.counts.settled += 1;
        if !self.may_change(written, before) {
            let what = format!("{} was settled by {:?}", before.version, self.calls[written.call].kind);
            self.violate(Invariant::OwnRowOnly, what);
        }
        if let Some(earlier) = &self.results[written.key] {
            let what = format!("the result {earlier} was replaced by {:?}", after.outcome);
            self.violate(Invariant::OnceIsOnce, what);
        }
        self.results[written.key].clone_from(&after.outcome);
        if let Some(current) = self.current[written.key] {
            self.grants[current].ended = true;
        }
    }

    pub(crate) fn begin_commit(&mut self, granted: usize) -> usize {
        self.commits.push(Commit { granted, applied: 0, denied: false, cancelled: false, by_copy: false });
        self.commits.len() - 1
    }

    /// A transaction with this write was applied.
    pub(crate) fn committed(&mut self, plan: &Plan, number: usize, written: Written) {
        self.counts.commits += 1;
        let newer = self.is_newer(plan, written);
        let commit = &mut self.commits[number];
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
        commit.cancelled = cancelled;
        let so = (commit.applied > 0) == said || (cancelled && commit.by_copy);
        if !so && !self.is_haunted(self.grants[granted].key) {
            let what = format!("applied {} times, said: {said}", self.commits[number].applied);
            self.violate(Invariant::CommittedIsSo, what);
        }
    }

    fn granted(&mut self, plan: &Plan, written: Written, grant: Grant, token: u64, before: Option<&Mark>) {
        let Written { key, call, begun, now, .. } = written;
        self.counts.grants += 1;
        let needs_clocks = plan.tokens_need_clocks();
        let disagreement = plan.disagreement();
        let counts = |earlier: &&Granted| !needs_clocks || earlier.applied + disagreement < begun;
        let forgotten = self.forgotten(plan, written, before);
        let unbroken = self.unbroken(key, before);
        let earlier = self.grants[forgotten..].iter().filter(counts).chain(&self.grants[unbroken..]);
        let earlier = earlier.filter(|one| one.key == key && one.grant.is_some());
        if let Some(larger) = earlier.max_by_key(|one| one.token).filter(|one| one.token >= token) {
            let what = format!("grant {grant} has token {token}, an earlier one had {}", larger.token);
            self.violate(Invariant::TokenGrows, what);
        }
        let ghost = written.late && self.cannot_be_refused(plan, written, before);
        let again = self.grants.iter().any(|one| one.grant == Some(grant));
        self.after_its_call(written, grant, ghost);
        if let Some(result) = &self.results[key] {
            let what = format!("granted to {grant}, and its result is {result}");
            self.violate(Invariant::OnceIsOnce, what);
        }
        let kind = self.calls[call].kind.clone();
        let previous = self.current[key].map(|previous| &self.grants[previous]);
        let alive = previous.is_some_and(|previous| !previous.ended);
        let CallKind::Acquire { owner, reclaims } = kind else {
            return self.violate(Invariant::OwnRowOnly, format!("a grant {grant} was written by {kind:?}"));
        };
        let inherited = previous.is_some() && reclaims && before.is_some_and(|before| before.owner == owner);
        let lineage = previous.filter(|_| inherited).map_or(self.grants.len(), |previous| previous.lineage);
        let of_peer = previous.is_some_and(|previous| previous.grant.is_none());
        self.counts.reclaims += u64::from(inherited && alive);
        self.counts.takeovers += u64::from(!inherited && alive);
        self.counts.takeovers_of_peers += u64::from(alive && of_peer);
        self.counts.claims_applied_twice += u64::from(again);
        if let (true, Some(previous)) = (inherited, self.current[key]) {
            // Whoever still holds it as the earlier grant is the same holder.
            self.grants[previous].ended = true;
        }
        self.push(Granted {
            forgotten,
            key,
            grant: Some(grant),
            token,
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
            renewed: now,
        });
    }

    /// Whether what is on the row was asked for later than this request, by more than clocks disagree: the
    /// protocol has to refuse it then.
    fn is_newer(&self, plan: &Plan, written: Written) -> bool {
        self.written[written.key] > written.read + plan.disagreement()
    }

    /// Whether a late Claim is one of those that the protocol cannot refuse: its row was deleted, or what is on
    /// it (a release, mostly) was asked for before the Claim, and so was in flight then; as far as clocks can
    /// tell.
    fn cannot_be_refused(&self, plan: &Plan, written: Written, before: Option<&Mark>) -> bool {
        before.is_none() || !self.is_newer(plan, written)
    }

    /// The first grant of the chain that a new one continues, if the row carries a grant of ours; else its own.
    fn unbroken(&self, key: usize, before: Option<&Mark>) -> usize {
        let current = self.current[key].filter(|_| before.is_some_and(|before| before.own.is_some()));
        current
            .map(|current| &self.grants[current])
            .filter(|one| one.grant.is_some())
            .map_or(self.grants.len(), |one| one.unbroken)
    }

    /// The first grant that a new one's token can be told from. Where the row has no token of ours, one that
    /// follows a grant too closely for the clocks, or a late copy of a Claim, brings back a smaller one; and
    /// later ones are counted on from it.
    fn forgotten(&self, plan: &Plan, written: Written, before: Option<&Mark>) -> usize {
        let earlier = self.grants.iter().rev().find(|one| one.key == written.key && one.grant.is_some());
        match earlier {
            Some(earlier)
                if before.is_none_or(|before| before.own.is_none())
                    && earlier.applied + plan.disagreement() >= written.begun =>
            {
                self.grants.len()
            }
            Some(earlier) => earlier.forgotten,
            None => 0,
        }
    }

    fn push(&mut self, granted: Granted) {
        self.current[granted.key] = Some(self.grants.len());
        self.written[granted.key] = granted.begun;
        self.grants.push(granted);
    }

    /// A grant that lands when nobody waits for it any more.
    fn after_its_call(&mut self, written: Written, grant: Grant, ghost: bool) {
        let ended = self.calls[written.call].ended;
        let again = self.grants.iter().any(|one| one.grant == Some(grant));
        match ended {
            Ended::Running => {}
            // Whoever was told "unknown" knows that it may still come.
            Ended::Unknown => self.counts.ghosts += 1,
            Ended::Refused if ghost && written.refused => self.counts.ghosts_of_refused += 1,
            Ended::Refused | Ended::Done if ghost && again => self.counts.ghosts += 1,
            Ended::Refused | Ended::Done => {
                let what = format!("grant {grant} was applied after its call had ended: {ended:?}");
                self.violate(Invariant::NoGrantAfterRefusal, what);
            }
        }
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
            renewed: now,
        });
    }

    pub(crate) fn released_by_peer(&mut self, key: usize) {
        if let Some(current) = self.current[key] {
            self.grants[current].ended = true;
        }
    }

    /// Whether this call may change the row's grant.
    fn may_change(&self, written: Written, before: &Mark) -> bool {
        let current = self.current[written.key].map(|current| &self.grants[current]);
        let is = |grant, token| before.own.is_some_and(|own| own.grant == grant) && before.token == Some(token);
        match &self.calls[written.call].kind {
            CallKind::Acquire { .. } => current.is_some_and(|current| current.call == written.call),
            CallKind::Hold(grant, token) => is(*grant, *token),
            CallKind::Release { grant, token, later_of } => {
                is(*grant, *token) || later_of.as_ref().is_some_and(|owner| *owner == before.owner)
            }
            CallKind::Workflow(workflow) => before.workflow.as_ref() == Some(workflow),
            CallKind::Peer => false,
        }
    }

    fn renewed(&mut self, written: Written, before: &Mark, after: &Mark) {
        self.counts.renewals += 1;
        if !self.may_change(written, before) {
            let what = format!("{} was renewed by {:?}", before.version, self.calls[written.call].kind);
            self.violate(Invariant::OwnRowOnly, what);
        }
        if after.lease < before.lease || after.ends < before.ends {
            let what = format!(
                "lease {} ms until {:?} became {} ms until {:?}",
                before.lease, before.ends, after.lease, after.ends
            );
            self.violate(Invariant::LeaseNeverShrinks, what);
        }
        if let Some(current) = self.current[written.key].filter(|_| before.version != after.version) {
            self.grants[current].renewed = written.now;
            self.written[written.key] = written.begun;
        }
    }

    fn released(&mut self, written: Written, before: &Mark, after: &Mark) {
        if before.released {
            // One that was asked for earlier and lands later takes back when the lease ended.
            let earlier = &mut self.written[written.key];
            *earlier = written.begun.min(*earlier);
            return;
        }
        self.counts.released += 1;
        let kind = &self.calls[written.call].kind;
        self.counts.workflows_cleaned += u64::from(matches!(kind, CallKind::Workflow(_)));
        if !self.may_change(written, before) {
            let what = format!("{} was released by {kind:?}", before.version);
            self.violate(Invariant::OwnRowOnly, what);
        }
        debug_assert!(after.released);
        let cleans_up = matches!(self.calls[written.call].kind, CallKind::Acquire { .. });
        let Some(current) = self.current[written.key] else { return };
        if !cleans_up && self.written[written.key] > written.read {
            let what = format!("a release ended {}, which was asked for after the release", before.version);
            self.violate(Invariant::NoDelayedRelease, what);
        }
        self.grants[current].ended = true;
        self.written[written.key] = written.begun;
    }

    fn deleted(&mut self, written: Written, before: Option<&Mark>) {
        let Some(before) = before else { return };
        if !before.released {
            self.released(written, before, &Mark { released: true, ..before.clone() });
        }
        self.current[written.key] = None;
    }

    /// Somebody deleted the row by hand.
    pub(crate) fn row_is_gone(&mut self, key: usize) {
        self.counts.rows_deleted += 1;
        if let Some(current) = self.current[key].take() {
            self.grants[current].ended = true;
        }
    }

    /// A guard of this grant said at `now` that the lock is its own.
    pub(crate) fn mine(&mut self, plan: &Plan, granted: usize, now: Nanos) {
        self.counts.checks += 1;
        let own = &self.grants[granted];
        let newer = self.grants[granted + 1..].iter().find(|newer| {
            newer.key == own.key
                && newer.lineage != own.lineage
                && newer.said_mine.is_some()
                && (newer.grant.is_some() || own.grant.is_some())
        });
        if let Some(newer) = newer
            && !own.ended
            && !plan.clocks.beyond_bounds
            && !self.is_haunted(own.key)
        {
            let name = |one: &Granted| one.grant.map_or("another client".to_owned(), |grant| format!("grant {grant}"));
            let what = format!("{} says mine after {} said so", name(own), name(newer));
            self.violate(Invariant::OneHolder, what);
        }
        self.grants[granted].said_mine = Some(now);
    }

    /// An effect reaches the resource; `fenced`: it refuses smaller tokens.
    pub(crate) fn effect(&mut self, plan: &Plan, granted: usize, fenced: bool) {
        let Granted { key, token, .. } = self.grants[granted];
        let resource = &mut self.resource[key];
        if fenced && token < resource.token {
            self.counts.stale_effects += 1;
            return;
        }
        self.counts.effects += 1;
        resource.token = token;
        let Some(newest) = resource.newest.filter(|newest| *newest > granted) else {
            resource.newest = Some(granted);
            return;
        };
        let newer = &self.grants[newest];
        let later = self.grants[granted].applied + plan.disagreement() < newer.begun;
        let unbroken = !plan.tokens_need_clocks() || newer.unbroken <= granted;
        let tellable = (unbroken || (later && newer.forgotten <= granted)) && !self.is_haunted(key);
        if tellable {
            let what = format!("an effect with token {token} was applied after one of a later grant");
            self.violate(Invariant::EffectsInOrder, what);
        }
    }
}
