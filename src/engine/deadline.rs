//! The caller's time for one call, and the lease that the call asks for.

use super::budget::Budget;
use super::error::Error;
use crate::protocol::{Invalid, LONGEST_LEASE, Lease, LockKey, Moment, Rules};
use std::time::Duration;

/// No lease is written that is shorter.
const SHORTEST_LEASE: Duration = Duration::from_millis(1);

/// The caller's time, counted from a start.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) started: Moment,
    /// For somebody else's lock.
    pub(crate) wait: Duration,
    /// For answers, faults included.
    pub(crate) answers: Duration,
    pub(crate) term: Term,
}

/// Which lease to ask for.
#[derive(Clone, Debug)]
pub(crate) enum Term {
    /// Always this one.
    Fixed(Duration),
    /// What covers the rest of this budget.
    Covering(Budget),
    /// This one, but not beyond the end of the budget.
    Within(Duration, Budget),
}

impl Term {
    pub(crate) fn lease(&self, rules: &Rules) -> Duration {
        match self {
            Term::Fixed(lease) | Term::Within(lease, _) => *lease,
            // A budget may last longer than any lease: renewals go on from there.
            // A budget that ran out since the call began must not write a lease of zero, which nobody reads.
            Term::Covering(budget) => budget.lease(rules).unwrap_or_default().clamp(SHORTEST_LEASE, LONGEST_LEASE),
        }
    }

    pub(super) fn latest_end(&self, now_millis: u64) -> Option<u64> {
        let Term::Within(_, budget) = self else { return None };
        let cover = u64::try_from(budget.to_cover()?.as_millis()).unwrap_or(u64::MAX);
        Some(now_millis.saturating_add(cover))
    }
}

/// The lease of a call: from its budget, or given by the caller.
pub(crate) fn term(key: &LockKey, lease: Option<Duration>, budget: Option<&Budget>) -> Result<Term, Error> {
    if let Some(lease) = lease {
        Lease::check(lease)?;
    }
    match (lease, budget) {
        (Some(lease), Some(budget)) => Ok(Term::Within(lease, budget.clone())),
        (Some(lease), None) => Ok(Term::Fixed(lease)),
        (None, Some(budget)) => match budget.remaining() {
            Some(remaining) if remaining.is_zero() => {
                Err(Error::out_of_time(key, "budget", Duration::from_millis(1), remaining))
            }
            Some(_) => Ok(Term::Covering(budget.clone())),
            None => Err(Invalid::new(format!(
                "the end of this budget is unknown, so it gives no lease for the lock {key}: give one with .lease(…)"
            ))
            .into()),
        },
        (None, None) => Err(Invalid::new(format!(
            "the lock {key} needs a lease: give the budget it must cover with .within(&budget), or a .lease(…)"
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the simulation: a process that was paused before its first request wrote a lease of zero,
    /// and could not renew it.
    #[test]
    fn a_budget_that_ran_out_on_the_way_still_gives_a_lease_that_can_be_renewed() {
        let spent = Term::Covering(Budget::until(std::time::SystemTime::UNIX_EPOCH).grace(Duration::ZERO));
        assert!(Lease::check(spent.lease(&Rules::default())).is_ok());
    }
}
