//! The budget: how long to hold a lock and how long to wait for it, from the deadline of an invocation.

use super::clock::{self, Clock};
use lambda_lock_protocol::{ClockBounds, Instants};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The time that is left of an invocation, or of any other work that has an end.
///
/// A lock acquired [`within`](crate::Acquire::within) a budget
/// * has a lease that covers the budget and its grace: `(remaining + grace) × (1 + drift)`. If an invocation was killed
///   at its deadline, other callers can acquire the lock when that lease has ended and `max_clock_skew` has passed.
///   With the defaults, that is about 3 s and 5 % of the timeout after the deadline;
/// * is waited for no longer than `remaining − reserve`, so that there is time left to work.
///
/// | setting | default | why |
/// |---|---|---|
/// | [`grace`](Budget::grace) | 1 s | Lambda stops a function after its deadline |
/// | [`reserve`](Budget::reserve) | half of the budget as it was when created | as much time for the work as for waiting |
/// | [`owner`](Budget::owner) | none: the client's | an invocation's budget names the invocation; each acquire adds random digits |
///
/// ```
/// use lambda_lock::Budget;
/// use std::time::Duration;
///
/// let budget = Budget::lasting(Duration::from_secs(30)).reserve(Duration::from_secs(20));
/// assert!(budget.remaining().unwrap() <= Duration::from_secs(30));
/// ```
///
/// With the feature `lambda`, `Budget::from(&event.context)` is what is left of an invocation.
///
/// Time is counted by the monotonic clock and the wall clock, and the one that shows more time passed counts. A sandbox
/// that was frozen therefore does not continue with time that it no longer has. Once a call is given the budget, that
/// call and its lock use the clock of their client.
#[derive(Clone, Debug)]
pub struct Budget {
    clock: Arc<dyn Clock>,
    started: Instants,
    /// How much of the budget had passed when it was moved to this clock.
    passed: Duration,
    total: Option<Duration>,
    grace: Duration,
    reserve: Duration,
    owner: Option<Arc<str>>,
}

impl Budget {
    /// How long after the deadline the lease still covers the work. Lambda stops a function only some time *after* its
    /// deadline (0.68 s late was seen), and until then the function may still act.
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(1);

    /// A budget that ends this much later than now.
    pub fn lasting(duration: Duration) -> Self {
        Self::lasting_on(clock::system(), duration)
    }

    /// A budget that ends at a point in time, such as an invocation's deadline. If that time has passed, nothing is
    /// left.
    pub fn until(deadline: SystemTime) -> Self {
        let clock = clock::system();
        let now = clock.now();
        let deadline = Instants::new(now.monotonic, deadline);
        Self::starting(clock, now, Some(deadline.wall.saturating_sub(now.wall)))
    }

    /// A budget whose end is unknown. Locks acquired within it need an explicit [`lease`](crate::Acquire::lease), and a
    /// call cannot wait for a lock.
    pub fn unknown() -> Self {
        let clock = clock::system();
        let now = clock.now();
        Self::starting(clock, now, None)
    }

    /// A budget on a clock of your own, for tests: [`remaining`](Budget::remaining) reads that clock.
    pub fn lasting_on(clock: Arc<dyn Clock>, duration: Duration) -> Self {
        let now = clock.now();
        Self::starting(clock, now, Some(duration))
    }

    fn starting(clock: Arc<dyn Clock>, started: Instants, total: Option<Duration>) -> Self {
        Self {
            clock,
            started,
            passed: Duration::ZERO,
            total,
            grace: Self::DEFAULT_GRACE,
            reserve: total.unwrap_or_default() / 2,
            owner: None,
        }
    }

    /// The same budget, but no longer than this from its start.
    #[cfg(feature = "lambda")]
    pub(crate) fn at_most(self, longest: Duration) -> Self {
        let total = self.total.map(|total| total.min(longest));
        Self { total, reserve: total.unwrap_or_default() / 2, ..self }
    }

    /// Sets how long after its end the work may still act. The lease must cover that time. Default: 1 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how much of the budget is kept for the work. Waiting for a lock ends when no more than this is left.
    /// A call that has no more than this left tries once, and returns `Held` if it is refused.
    /// Default: half of the budget as it was when created.
    #[must_use]
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.reserve = reserve;
        self
    }

    /// Sets the owner of the locks acquired within this budget, where the acquire itself [does not name
    /// one](crate::Acquire::owner). Default: none, so that the client's owner is used. A budget made from an
    /// invocation's context names the invocation.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Arc<str>>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Returns the time that is left, `None` if the end is unknown, and zero if it has passed.
    pub fn remaining(&self) -> Option<Duration> {
        self.left_of(self.total)
    }

    fn left_of(&self, span: Option<Duration>) -> Option<Duration> {
        let passed = self.passed();
        span.map(|span| span.saturating_sub(passed))
    }

    fn passed(&self) -> Duration {
        self.passed.saturating_add(self.clock.now().longest_since(self.started))
    }

    /// Returns the same budget, counted by this clock from now on. An operation reads only the clock of its engine. Two
    /// clocks may run at different rates, and their readings cannot be compared.
    pub(crate) fn on(&self, clock: &Arc<dyn Clock>) -> Self {
        if Arc::ptr_eq(&self.clock, clock) {
            return self.clone();
        }
        // Reads this clock before the other one, so that a pause in between does not add time to the budget.
        let started = clock.now();
        Self { passed: self.passed(), clock: clock.clone(), started, ..self.clone() }
    }

    /// The owner of the locks acquired within it.
    pub(crate) fn owner_name(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Returns how long a call may wait for a lock.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.remaining().map(|remaining| remaining.saturating_sub(self.reserve))
    }

    /// Returns how long the lock must stay ours: until the end of the budget and its grace.
    pub(crate) fn to_cover(&self) -> Option<Duration> {
        self.left_of(self.total.map(|total| total.saturating_add(self.grace)))
    }

    /// Returns the lease that covers the budget and its grace.
    pub(crate) fn lease(&self, clock_bounds: &ClockBounds) -> Option<Duration> {
        self.to_cover().map(|cover| clock_bounds.stretched(cover))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_has_passed_leaves_nothing() {
        let budget = Budget::until(SystemTime::UNIX_EPOCH);
        assert_eq!(budget.remaining(), Some(Duration::ZERO));
        assert_eq!(budget.wait(), Some(Duration::ZERO));
    }

    #[test]
    fn the_lease_covers_the_budget_its_grace_and_the_drift() {
        let budget = Budget::lasting(Duration::from_secs(100)).grace(Duration::from_secs(3));
        let lease = budget.lease(&ClockBounds::default()).unwrap();
        assert!(lease <= Duration::from_millis(108_150) && lease > Duration::from_secs(107), "{lease:?}");
        assert!(ClockBounds::default().believed(lease) <= Duration::from_secs(103));
    }

    #[test]
    fn half_of_the_budget_is_kept_for_the_work() {
        let budget = Budget::lasting(Duration::from_secs(100));
        assert!(budget.wait().unwrap() <= Duration::from_secs(50));
        assert_eq!(budget.reserve(Duration::from_secs(200)).wait(), Some(Duration::ZERO));
    }

    #[test]
    fn an_unknown_end_gives_no_durations() {
        let budget = Budget::unknown();
        assert_eq!((budget.remaining(), budget.wait(), budget.to_cover()), (None, None, None));
    }
}
