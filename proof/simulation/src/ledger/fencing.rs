//! P1: tokens grow from grant to grant, and a resource that checks them applies effects in order.

use super::{Granted, Invariant, Ledger, Written};
use crate::plan::Plan;
use crate::table::Mark;
use lambda_lock_protocol::Grant;

/// A resource outside of the lock table that refuses smaller tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Resource {
    token: u64,
    newest: Option<usize>,
}

/// A freeze makes a row of ours that has no token yet.
fn has_our_token(row: &Mark) -> bool {
    row.own.is_some() && row.token.is_some()
}

impl Ledger {
    /// Where rows are deleted or written by others, this holds only as far as clocks can tell, and within an unbroken
    /// chain.
    pub(super) fn token_grows(
        &mut self,
        plan: &Plan,
        written: Written,
        (grant, token): (Grant, u64),
        forgotten: usize,
        unbroken: usize,
    ) {
        let needs_clocks = plan.tokens_need_clocks();
        let disagreement = plan.disagreement();
        let counts = |earlier: &&Granted| !needs_clocks || earlier.applied + disagreement < written.begun;
        let earlier = self.grants[forgotten..].iter().filter(counts).chain(&self.grants[unbroken..]);
        let earlier = earlier.filter(|one| one.key == written.key && one.grant.is_some() && !one.nonsense);
        if let Some(larger) = earlier.max_by_key(|one| one.token).filter(|one| one.token >= token) {
            let what = format!("grant {grant} has token {token}, an earlier one had {}", larger.token);
            self.violate(Invariant::TokenGrows, what);
        }
    }

    /// The first grant of the chain that a new grant continues, if the row has one of our grants. Otherwise the new
    /// grant itself.
    pub(super) fn unbroken(&self, key: usize, before: Option<&Mark>) -> usize {
        let current = self.current[key].filter(|_| before.is_some_and(has_our_token));
        current
            .map(|current| &self.grants[current])
            .filter(|one| one.grant.is_some())
            .map_or(self.grants.len(), |one| one.unbroken)
    }

    /// The first grant that a new token is compared with. If the row has none of our tokens, a grant that follows
    /// another too closely for the clocks, or a late copy of a Claim, can bring back a smaller token. Later tokens are
    /// then counted from it.
    pub(super) fn forgotten(&self, plan: &Plan, written: Written, before: Option<&Mark>) -> usize {
        let earlier = self.grants.iter().rev().find(|one| one.key == written.key && one.grant.is_some());
        match earlier {
            Some(earlier)
                if !before.is_some_and(has_our_token) && earlier.applied + plan.disagreement() >= written.begun =>
            {
                self.grants.len()
            }
            Some(earlier) => earlier.forgotten,
            None => 0,
        }
    }

    /// An effect reaches the resource. `fenced`: the resource refuses smaller tokens.
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
