//! P5 and its exception: grants that are applied when nobody waits for them any more.

use super::{CallKind, Ended, Invariant, Ledger, Reclaims, Written};
use crate::plan::Plan;
use crate::table::Mark;
use lambda_lock_protocol::Grant;

impl Ledger {
    /// A grant that is applied when nobody waits for it any more.
    pub(super) fn after_its_call(&mut self, written: Written, grant: Grant, ghost: bool) {
        let ended = self.calls[written.call].ended;
        let again = self.grants.iter().any(|one| one.grant == Some(grant));
        match ended {
            Ended::Running => {}
            // A caller with an unknown outcome knows that the request may still be applied.
            Ended::Unknown => self.counts.ghosts += 1,
            Ended::Refused if ghost && written.refused => self.counts.ghosts_of_refused += 1,
            Ended::Refused | Ended::Done if ghost && again => self.counts.ghosts += 1,
            Ended::Refused | Ended::Done => {
                let what = format!("grant {grant} was applied after its call had ended: {ended:?}");
                self.violate(Invariant::NoGrantAfterRefusal, what);
            }
        }
    }

    /// A release prevents grants that were requested before it, whatever their callers were told. It does not prevent a
    /// reclaim of a written-down lock, which takes a released lock too. P3 says what others see then.
    pub(super) fn not_over_a_release(&mut self, written: Written, grant: Grant, ghost: bool, before: Option<&Mark>) {
        let call = &self.calls[written.call];
        let reclaims = matches!(call.kind, CallKind::Acquire { reclaims: Reclaims::Grant(_), .. });
        let over = call.ended == Ended::Unknown && written.late && !ghost && !reclaims;
        if over && before.is_some_and(|before| before.released) {
            let what = format!("grant {grant} was applied over a release that was asked for after it");
            self.violate(Invariant::NoGhostAfterRelease, what);
        }
    }

    /// Whether the protocol cannot refuse a late grant. That is so if its row was deleted, also when a late copy of a Claim has
    /// created it again since, perhaps with the very version that a late Take requires; and if such a copy has brought that version
    /// back to a row that was not deleted. And it is so if the last write of the row (mostly a release) was requested before the
    /// grant and was in flight at that time, as far as clocks can tell.
    pub(super) fn cannot_be_refused(&self, plan: &Plan, written: Written, before: Option<&Mark>) -> bool {
        before.is_none() || self.is_haunted(written.key) || self.is_back(written.key) || !self.is_newer(plan, written)
    }

    /// Whether a late copy of a Claim has granted once more what was granted and released before. Then the row has the very version
    /// again that an earlier Take required.
    fn is_back(&self, key: usize) -> bool {
        let Some(current) = self.current[key].map(|current| &self.grants[current]) else { return false };
        current.ghost && self.grants.iter().filter(|one| one.grant == current.grant).count() > 1
    }

    /// Whether the last write of the row was requested later than this request, by more than the clock difference. Then
    /// the protocol must refuse this request.
    pub(super) fn is_newer(&self, plan: &Plan, written: Written) -> bool {
        self.written[written.key] > written.read + plan.disagreement()
    }

    /// Whether the row was deleted and a late copy of its Claim created it again. Then earlier reports are no longer
    /// valid.
    pub(crate) fn is_resurrected(&self, key: usize) -> bool {
        self.current[key].is_some_and(|current| self.grants[current].resurrected)
    }

    /// Whether a late copy of a Claim outlived the row. The copy creates the grant again, perhaps with the same token,
    /// so fencing cannot tell it from the grants that followed. The crate's docs on deleting rows say so.
    pub(super) fn is_haunted(&self, key: usize) -> bool {
        self.grants.iter().any(|one| one.key == key && one.resurrected)
    }
}
