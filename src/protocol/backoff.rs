//! How long to pause: after a fault briefly, behind a holder for longer and longer.

use super::machine::Tick;
use std::time::Duration;

/// After a fault: 25 ms, then twice as long each time, up to 400 ms.
const FAULT: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));
/// Behind a holder: 30 ms, then half as long again each time.
pub(crate) const SHORTEST_POLL: Duration = Duration::from_millis(30);
/// Up to 250 ms: the five reads of a second cost a third of what the second costs a 128 MB function that waits.
/// Longer only in a crowd.
pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(250);

/// Pauses that grow, each of them between half and all of its nominal length, so that waiters that
/// began together drift apart.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
    growth: f64,
}

impl Backoff {
    pub(crate) fn after_fault() -> Self {
        Self { next: FAULT.0, longest: FAULT.1, growth: 2.0 }
    }

    pub(crate) fn behind_a_holder() -> Self {
        Self { next: SHORTEST_POLL, longest: LONGEST_POLL, growth: 1.5 }
    }

    pub(crate) fn pause(&mut self, tick: &Tick<'_>) -> Duration {
        let nominal = self.next;
        self.next = nominal.mul_f64(self.growth).min(self.longest);
        varied(nominal, tick)
    }
}

/// Between half and all of it.
pub(crate) fn varied(nominal: Duration, tick: &Tick<'_>) -> Duration {
    nominal.mul_f64(0.5 + tick.random_fraction() / 2.0)
}

/// What one call met that was no answer: when to pause, and when to give up.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    backoff: Backoff,
    pending: Option<Pending>,
    unavailable: bool,
}

/// How the next request after a fault goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// At once: it asks what became of the one before.
    AtOnce,
    AfterPause,
}

impl Faults {
    pub(crate) fn none() -> Self {
        Self { backoff: Backoff::after_fault(), pending: None, unavailable: false }
    }

    /// The next request may go at once, if the caller still has time.
    pub(crate) fn go_on_at_once(&mut self) {
        self.pending = Some(Pending::AtOnce);
        self.unavailable = false;
    }

    /// The next request goes after a pause, if the caller still has time.
    pub(crate) fn go_on_after_pause(&mut self) {
        self.pending = Some(Pending::AfterPause);
        self.unavailable = false;
    }

    /// DynamoDB refused for now: the next request goes after a pause.
    pub(crate) fn unavailable(&mut self) {
        self.pending = Some(Pending::AfterPause);
        self.unavailable = true;
    }

    /// An answer came.
    pub(crate) fn answered(&mut self) {
        self.pending = None;
        self.unavailable = false;
    }

    /// Whether the last answer was that DynamoDB refuses for now.
    pub(crate) fn was_unavailable(&self) -> bool {
        self.unavailable
    }

    /// The pause that is due, never longer than the caller's time; `Err` when a fault is pending
    /// and no time is left to go on.
    pub(crate) fn due_pause(&mut self, tick: &Tick<'_>) -> Result<Option<Duration>, OutOfTime> {
        let Some(pending) = self.pending else { return Ok(None) };
        if tick.time_left.is_zero() {
            return Err(OutOfTime);
        }
        if pending == Pending::AtOnce {
            return Ok(None);
        }
        self.pending = Some(Pending::AtOnce);
        Ok(Some(self.backoff.pause(tick).min(tick.time_left)))
    }
}

/// The caller's time is over.
#[derive(Debug)]
pub(crate) struct OutOfTime;
