//! Frozen locks: granted to nobody but their holder, until they are thawed.

use super::{CallId, Ended, Invariant, Ledger, Written};
use crate::plan::Plan;
use crate::table::Mark;

impl Ledger {
    /// A freeze or a thaw was applied.
    pub(super) fn frozen(&mut self, plan: &Plan, written: Written, before: Option<&Mark>, after: &Mark) {
        if after.frozen {
            self.counts.frozen += 1
        } else {
            self.counts.thawed += u64::from(is_frozen(before))
        }
        let call = &self.calls[written.call];
        let is_late = call.ended != Ended::Running;
        self.counts.late_freezes += u64::from(is_late);
        let expected = before.map(|before| Mark {
            frozen: after.frozen,
            freeze_changed_at: after.freeze_changed_at,
            ..before.clone()
        });
        if expected.is_some_and(|expected| expected != *after) || before.is_none() && !after.released {
            let what = format!("a freeze or a thaw made {after:?} of {before:?}");
            self.violate(Invariant::OwnRowOnly, what);
        }
        // A row that was deleted, or that the Java client has replaced, no longer orders them.
        let orders = !plan.tokens_need_clocks();
        let is_earlier = is_late && self.calls[written.call].started < self.last_freeze[written.key];
        let went_back = before.is_some_and(|before| before.freeze_changed_at >= after.freeze_changed_at);
        if orders && (is_earlier || went_back) {
            let what = format!("{before:?} became {after:?} by a call that began before the last one");
            self.violate(Invariant::FreezesInOrder, what);
        }
    }

    /// An operator was told that the lock is frozen, or thawed.
    pub(crate) fn freeze_ended(&mut self, key: usize, call: CallId) {
        self.last_freeze[key] = self.calls[call].started;
    }

    /// A write of a caller was applied.
    pub(super) fn stays_as_frozen_as_it_was(&mut self, before: Option<&Mark>, after: &Mark) {
        let Some(before) = before else { return };
        if (after.frozen, after.freeze_changed_at) != (before.frozen, before.freeze_changed_at) {
            self.violate(Invariant::FreezeStays, format!("{before:?} became {after:?}"));
        }
    }

    pub(super) fn not_while_frozen(&mut self, call: CallId, before: Option<&Mark>) {
        let Some(before) = before.filter(|before| before.frozen) else { return };
        if before.released || !self.calls[call].takes(before) {
            self.violate(Invariant::FrozenIsNobodys, format!("a grant by {:?} on {before:?}", self.calls[call].kind));
        }
        self.counts.reclaimed_frozen += 1;
    }
}

fn is_frozen(mark: Option<&Mark>) -> bool {
    mark.is_some_and(|mark| mark.frozen)
}
