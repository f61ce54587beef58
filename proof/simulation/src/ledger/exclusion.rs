//! P2: one holder at a time, and nobody changes another holder's row.

use super::{CallKind, Granted, Invariant, Ledger, MILLI, Written};
use crate::clocks::Nanos;
use crate::plan::Plan;
use crate::table::Mark;
use std::time::Duration;

impl Ledger {
    /// Whether this call may change the row of this grant.
    pub(super) fn may_change(&self, written: Written, before: &Mark) -> bool {
        let current = self.current[written.key].map(|current| &self.grants[current]);
        let is = |grant, token| before.own.is_some_and(|own| own.grant == grant) && before.token == Some(token);
        match &self.calls[written.call].kind {
            CallKind::Acquire { .. } => current.is_some_and(|current| current.call == written.call),
            CallKind::Hold(grant, token) => is(*grant, *token),
            CallKind::Release { grant, token, later_of } => {
                // Also the owner that was granted the lock, because somebody may have changed the name on the row.
                let granted_to = current.and_then(|current| match &self.calls.get(current.call)?.kind {
                    CallKind::Acquire { owner, .. } => Some(owner),
                    _ => None,
                });
                let is_of = |owner: &String| *owner == before.owner || granted_to == Some(owner);
                is(*grant, *token) || later_of.as_ref().is_some_and(is_of)
            }
            CallKind::Workflow(workflow) => before.workflow.as_ref() == Some(workflow),
            CallKind::Break(version) => before.version == *version && !before.released,
            CallKind::Freeze | CallKind::Peer => false,
        }
    }

    pub(super) fn renewed(&mut self, written: Written, before: &Mark, after: &Mark) {
        self.counts.renewals += 1;
        if !self.may_change(written, before) {
            let what = format!("{} was renewed by {:?}", before.version, self.calls[written.call].kind);
            self.violate(Invariant::OwnRowOnly, what);
        }
        if after.lease < before.lease || after.ends_at_ms < before.ends_at_ms {
            let what = format!(
                "lease {} ms until {:?} became {} ms until {:?}",
                before.lease, before.ends_at_ms, after.lease, after.ends_at_ms
            );
            self.violate(Invariant::LeaseNeverShrinks, what);
        }
        if let Some(current) = self.current[written.key].filter(|_| before.version != after.version) {
            self.grants[current].renewed = written.now;
            let until = &mut self.grants[current].until;
            *until = (written.read + after.lease * MILLI).max(*until);
            self.written[written.key] = written.begun;
        }
    }

    pub(super) fn released(&mut self, written: Written, before: &Mark, after: &Mark) {
        if before.released {
            // A write that was requested earlier and is applied later moves the end of the lease back.
            let earlier = &mut self.written[written.key];
            *earlier = written.begun.min(*earlier);
            return;
        }
        self.counts.released += 1;
        let kind = &self.calls[written.call].kind;
        self.counts.workflows_cleaned += u64::from(matches!(kind, CallKind::Workflow(_)));
        self.counts.broken += u64::from(matches!(kind, CallKind::Break(_)));
        if !self.may_change(written, before) {
            let what = format!("{} was released by {kind:?}", before.version);
            self.violate(Invariant::OwnRowOnly, what);
        }
        debug_assert!(after.released);
        let cleans_up = matches!(self.calls[written.call].kind, CallKind::Acquire { .. });
        let Some(current) = self.current[written.key] else { return };
        // In a row that was deleted and that a late copy made again, other late copies may do so too.
        let is_as_promised = !self.is_resurrected(written.key);
        if is_as_promised && !cleans_up && self.written[written.key] > written.read {
            let what = format!("a release ended {}, which was asked for after the release", before.version);
            self.violate(Invariant::NoDelayedRelease, what);
        }
        self.grants[current].ended = true;
        self.written[written.key] = written.begun;
    }

    /// A work under a guard of this grant was polled at `now`.
    pub(crate) fn works(&mut self, plan: &Plan, granted: usize, now: Nanos) {
        self.counts.works_polled += 1;
        let own = &self.grants[granted];
        // A late copy of the Claim may outlive the row. It counts as a grant of its own, and so do its renewals.
        if now > own.until && !self.is_haunted(own.key) {
            let late = Duration::from_nanos(now - own.until);
            let what = format!("a work was polled {late:?} after the lease of its grant's last write");
            return self.violate(Invariant::WorkEndsWithLease, what);
        }
        let newer = self.grants[granted + 1..]
            .iter()
            .find(|newer| newer.key == own.key && newer.lineage != own.lineage && newer.worked.is_some());
        if let Some(newer) = newer
            && !own.ended
            && !plan.clocks.beyond_bounds
            && !self.is_haunted(own.key)
        {
            let what = format!("a work of token {} was polled after one of token {}", own.token, newer.token);
            self.violate(Invariant::OneWork, what);
        }
        self.grants[granted].worked = Some(now);
    }

    /// A guard of this grant was valid at `now`.
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
}
