//! How long to pause: after a fault briefly, behind a holder for longer and longer.

use super::port::{Now, Port};
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

    pub(crate) fn pause(&mut self, port: &mut impl Port) -> Duration {
        let nominal = self.next;
        self.next = nominal.mul_f64(self.growth).min(self.longest);
        varied(nominal, port)
    }
}

/// Between half and all of it.
pub(crate) fn varied(nominal: Duration, port: &mut impl Port) -> Duration {
    nominal.mul_f64(0.5 + port.random_fraction() / 2.0)
}

/// When one call sends its next request, after what it met so far.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    backoff: Backoff,
    due: Option<Due>,
    throttled: bool,
}

/// How the next request goes out after one that has not ended the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    AtOnce,
    AfterPause,
}

impl Retry {
    pub(crate) fn new() -> Self {
        Self { backoff: Backoff::after_fault(), due: None, throttled: false }
    }

    /// The next request goes at once, if the caller still has time.
    pub(crate) fn at_once(&mut self) {
        self.due = Some(Due::AtOnce);
        self.throttled = false;
    }

    /// The next request goes after a pause, if the caller still has time.
    pub(crate) fn after_pause(&mut self) {
        self.due = Some(Due::AfterPause);
        self.throttled = false;
    }

    /// DynamoDB refuses for now: the next request goes after a pause.
    pub(crate) fn throttled(&mut self) {
        self.due = Some(Due::AfterPause);
        self.throttled = true;
    }

    /// The row was seen: the next request goes whether or not the caller still has time.
    pub(crate) fn answered(&mut self) {
        self.due = None;
        self.throttled = false;
    }

    /// Whether DynamoDB refused the last request for now.
    pub(crate) fn was_throttled(&self) -> bool {
        self.throttled
    }

    /// Waits until the next request may be sent, never longer than the caller's time, and reads the clocks for it.
    /// Fails when the caller's time is over.
    pub(crate) async fn ready(&mut self, port: &mut impl Port) -> Result<Now, OutOfTime> {
        let now = port.now();
        let Some(due) = self.due else { return Ok(now) };
        if now.time_left.is_zero() {
            return Err(OutOfTime);
        }
        if due == Due::AtOnce {
            return Ok(now);
        }
        self.due = Some(Due::AtOnce);
        let pause = self.backoff.pause(port).min(now.time_left);
        port.sleep(pause).await;
        let now = port.now();
        if now.time_left.is_zero() { Err(OutOfTime) } else { Ok(now) }
    }
}

/// The caller's time is over.
#[derive(Debug)]
pub(crate) struct OutOfTime;
