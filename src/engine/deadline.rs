//! The caller's time for one call, and the lease that the call asks for.

use super::budget::Budget;
use super::error::Error;
use lambda_lock_protocol::{ClockBounds, Instants, Invalid, Lease, LockKey, Locks, MAX_LEASE, Now, WallClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long DynamoDB may take to recover a transaction: five seconds (AWS documents them with
/// `TransactionInProgressException`), the pause until the next retry, and its response.
const RECOVERY: Duration = Duration::from_secs(8);

/// The shortest lease that is written.
const MIN_LEASE: Duration = Duration::from_millis(1);

/// Ends a wait for another holder before its time, from outside of the call that waits. The call then ends by itself. To drop
/// it instead could leave a request behind that is applied later.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitEnd(Arc<AtomicBool>);

impl WaitEnd {
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The caller's time for one call, counted from its start, and the lease that the call asks for.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instants,
    /// How long the call waits for another holder's lock.
    wait: Duration,
    /// Ends that wait before its time.
    wait_end: WaitEnd,
    /// How long the call waits for responses, retries included.
    time: Duration,
    /// What is left of the caller's budget, if there is one and its end is known. Without its reserve, where that is for the work
    /// after the call.
    budget: Option<Duration>,
    lease: LeasePolicy,
}

impl Deadline {
    /// The deadline of a call that started at this moment, has this much time, and waits for no other holder.
    pub(super) fn new(started: Instants, time: Duration, budget: Option<Duration>, lease: LeasePolicy) -> Self {
        Self { started, wait: Duration::ZERO, wait_end: WaitEnd::default(), time, budget, lease }
    }

    /// What is left of the time to recover a transaction that this call met at `since`. It ends with the budget.
    pub(super) fn recovery_left(&self, since: Instants, now: Instants) -> Duration {
        let left = RECOVERY.saturating_sub(now.longest_since(since));
        self.budget.map_or(left, |budget| left.min(budget.saturating_sub(now.longest_since(self.started))))
    }

    /// Also waits this long for another holder's lock, and leaves the reserve of the budget to the work.
    pub(crate) fn waiting(self, wait: Duration, budget: Option<&Budget>) -> Self {
        Self { wait, time: self.time.max(wait), budget: budget.and_then(Budget::wait), ..self }
    }

    /// Waits for another holder only until this is ended.
    pub(crate) fn until(self, wait_end: WaitEnd) -> Self {
        Self { wait_end, ..self }
    }

    /// Whether the wait was ended before its time.
    pub(super) fn is_wait_ended(&self) -> bool {
        self.wait_end.is_ended()
    }

    /// Extends the time of the call to at least this much.
    pub(crate) fn at_least(self, time: Duration) -> Self {
        Self { time: self.time.max(time), ..self }
    }

    /// Shortens the time of the call to this.
    pub(crate) fn at_most(self, time: Duration) -> Self {
        Self { time: self.time.min(time), ..self }
    }

    /// The lease that the call asks for at present.
    pub(crate) fn lease(&self, clock_bounds: &ClockBounds) -> Duration {
        self.lease.lease(clock_bounds)
    }

    /// What is left at this moment.
    pub(super) fn at(&self, instants: Instants, wall: WallClock, clock_bounds: &ClockBounds) -> Now {
        let passed = instants.longest_since(self.started);
        let wait = if self.is_wait_ended() { Duration::ZERO } else { self.wait };
        Now {
            instants,
            wall,
            wait_left: wait.saturating_sub(passed),
            time_left: self.time.saturating_sub(passed),
            lease: self.lease.lease(clock_bounds),
            latest_end: self.lease.latest_end(wall.latest),
            server: None,
        }
    }
}

/// Which lease to ask for.
#[derive(Clone, Debug)]
pub(crate) enum LeasePolicy {
    /// The call writes no lease.
    None,
    /// The lease that covers the rest of this budget.
    Covering(Budget),
    /// This lease, but not beyond the end of the budget, if there is one.
    UpTo(Duration, Option<Budget>),
}

impl LeasePolicy {
    fn lease(&self, clock_bounds: &ClockBounds) -> Duration {
        match self {
            LeasePolicy::None => Duration::ZERO,
            LeasePolicy::UpTo(lease, _) => *lease,
            // A budget may last longer than any lease, and renewals extend the lease. A budget that ran out since the
            // call began must not write a lease of zero, which is not a valid lease.
            LeasePolicy::Covering(budget) => budget.lease(clock_bounds).unwrap_or_default().clamp(MIN_LEASE, MAX_LEASE),
        }
    }

    fn latest_end(&self, now_millis: u64) -> Option<u64> {
        let LeasePolicy::UpTo(_, Some(budget)) = self else { return None };
        let cover = u64::try_from(budget.to_cover()?.as_millis()).unwrap_or(u64::MAX);
        Some(now_millis.saturating_add(cover))
    }
}

/// Chooses the lease of a call: from its budget, or as the caller gave it.
pub(crate) fn lease_policy(
    keys: &[&LockKey],
    lease: Option<Duration>,
    budget: Option<&Budget>,
) -> Result<LeasePolicy, Error> {
    if let Some(lease) = lease {
        Lease::check(lease)?;
        return Ok(LeasePolicy::UpTo(lease, budget.cloned()));
    }
    let Some(budget) = budget else {
        return Err(Invalid::new(format!(
            "{} needs a lease: give the budget it must cover with .within(&budget), or a .lease(…)",
            Locks(keys)
        ))
        .into());
    };
    match budget.remaining() {
        Some(remaining) if remaining.is_zero() => {
            Err(Error::out_of_time(keys, "budget", Duration::from_millis(1), remaining))
        }
        Some(_) => Ok(LeasePolicy::Covering(budget.clone())),
        None => Err(Invalid::new(format!(
            "the end of this budget is unknown, so it gives no lease for {}: give one with .lease(…)",
            Locks(keys)
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by the simulation: a process that was paused before its first request wrote a lease of zero, and could
    /// not renew it.
    #[test]
    fn a_budget_that_ran_out_on_the_way_still_gives_a_lease_that_can_be_renewed() {
        let spent = LeasePolicy::Covering(Budget::until(std::time::SystemTime::UNIX_EPOCH).grace(Duration::ZERO));
        assert!(Lease::check(spent.lease(&ClockBounds::default())).is_ok());
    }
}
