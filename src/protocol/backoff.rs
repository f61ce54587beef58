//! How long to pause: briefly after a fault, and longer and longer behind a holder.

use super::port::{Now, Port};
use std::time::Duration;

/// After a fault: 25 ms at first, then twice as long each time, up to 400 ms.
const FAULT: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));
/// Behind a holder: 30 ms at first, then half as long again each time.
pub(crate) const SHORTEST_POLL: Duration = Duration::from_millis(30);
/// The longest pause of a single contender. The five reads of a second cost a third of what the same second costs a 128
/// MB function that waits. Pauses are longer only when many contenders wait.
pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(250);

/// Pauses that grow. Each one is between half and all of its nominal length, so that contenders that began together
/// drift apart.
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

/// Returns a random duration between half and all of this one.
pub(crate) fn varied(nominal: Duration, port: &mut impl Port) -> Duration {
    nominal.mul_f64(0.5 + port.random_fraction() / 2.0)
}

/// When a call sends its next request, after the responses so far.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    backoff: Backoff,
    due: Option<Due>,
    throttled: bool,
    /// `repeat` was called before.
    repeats: bool,
}

/// How the next request is sent, after a response that did not end the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    AtOnce,
    AfterPause,
}

impl Retry {
    pub(crate) fn new() -> Self {
        Self { backoff: Backoff::after_fault(), due: None, throttled: false, repeats: false }
    }

    /// Sends the next request at once, if the caller still has time.
    pub(crate) fn at_once(&mut self) {
        self.due = Some(Due::AtOnce);
        self.throttled = false;
    }

    /// Sends the next request after a pause, if the caller still has time.
    pub(crate) fn after_pause(&mut self) {
        self.due = Some(Due::AfterPause);
        self.throttled = false;
    }

    /// Repeats a request: the first time at once, later after a pause, so that it does not race a busy copy of the lock.
    pub(crate) fn repeat(&mut self) {
        if self.repeats {
            self.after_pause()
        } else {
            self.at_once()
        }
        self.repeats = true;
    }

    /// DynamoDB throttled the request. Sends the next one after a pause.
    pub(crate) fn throttled(&mut self) {
        self.due = Some(Due::AfterPause);
        self.throttled = true;
    }

    /// The response showed the row. Sends the next request even if the caller has no time left.
    pub(crate) fn answered(&mut self) {
        self.due = None;
        self.throttled = false;
    }

    /// Whether DynamoDB throttled the last request.
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
