//! P5, and what it excepts: grants that are applied when nobody waits for them any more.

use super::{Ended, Invariant, Ledger, Written};
use crate::plan::Plan;
use crate::table::Mark;
use lambda_lock::protocol::Grant;

impl Ledger {
    /// A grant that lands when nobody waits for it any more.
    pub(super) fn after_its_call(&mut self, written: Written, grant: Grant, ghost: bool) {
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

    /// A release stops what was asked for before it, whatever its caller was told.
    pub(super) fn not_over_a_release(&mut self, written: Written, grant: Grant, ghost: bool, before: Option<&Mark>) {
        let over = self.calls[written.call].ended == Ended::Unknown && written.late && !ghost;
        if over && before.is_some_and(|before| before.released) {
            let what = format!("grant {grant} was applied over a release that was asked for after it");
            self.violate(Invariant::NoGhostAfterRelease, what);
        }
    }

    /// Whether a late Claim is one of those that the protocol cannot refuse: its row was deleted, or what is on
    /// it (a release, mostly) was asked for before the Claim, and so was in flight then; as far as clocks can
    /// tell.
    pub(super) fn cannot_be_refused(&self, plan: &Plan, written: Written, before: Option<&Mark>) -> bool {
        before.is_none() || !self.is_newer(plan, written)
    }

    /// Whether what is on the row was asked for later than this request, by more than clocks disagree: the
    /// protocol has to refuse it then.
    pub(super) fn is_newer(&self, plan: &Plan, written: Written) -> bool {
        self.written[written.key] > written.read + plan.disagreement()
    }

    /// Whether the row was deleted, and a late copy of its Claim has brought it back: then what was said before
    /// is over.
    pub(crate) fn is_resurrected(&self, key: usize) -> bool {
        self.current[key].is_some_and(|current| self.grants[current].resurrected)
    }

    /// Whether a late copy of a Claim outlived the row: it brings back its grant, perhaps with its token, and
    /// fencing no longer tells it from the ones that followed. The crate's docs say so of deleting rows.
    pub(super) fn is_haunted(&self, key: usize) -> bool {
        self.grants.iter().any(|one| one.key == key && one.resurrected)
    }
}
