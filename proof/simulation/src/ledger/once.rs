//! Idempotent work: it is done once, and its result stays.

use super::{Invariant, Ledger, Written};
use crate::table::Mark;
use lambda_lock_protocol::Grant;

impl Ledger {
    pub(super) fn not_after_its_result(&mut self, key: usize, grant: Grant) {
        if let Some(result) = &self.results[key] {
            let what = format!("granted to {grant}, and its result is {result}");
            self.violate(Invariant::OnceIsOnce, what);
        }
    }

    /// The result of idempotent work was stored.
    pub(super) fn settled(&mut self, written: Written, before: Option<&Mark>, after: &Mark) {
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
}
