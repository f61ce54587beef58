//! How long to pause: briefly after a fault, and longer and longer behind a holder.

use super::instants::Instants;
use super::port::{Now, Port};
use std::time::Duration;

/// After a fault: 25 ms at first, then twice as long each time, up to 400 ms.
const FAULT: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));
/// While DynamoDB works on a transaction: half a second at least (AWS recommends it as the first pause), and up to 4 s.
const IN_PROGRESS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
const SHORTEST_IN_PROGRESS: Duration = Duration::from_millis(500);
/// A retry this long after a transaction was first sent makes DynamoDB recover it. AWS documents five seconds with
/// `TransactionInProgressException`, and the first request took some time to arrive.
const RECOVERABLE: Duration = Duration::from_millis(5250);
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

    fn while_in_progress() -> Self {
        Self { next: IN_PROGRESS.0, longest: IN_PROGRESS.1, growth: 2.0 }
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
    in_progress: Backoff,
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
    /// DynamoDB still works on the transaction that was first sent at this moment.
    InProgress(Instants),
}

impl Retry {
    pub(crate) fn new() -> Self {
        let (backoff, in_progress) = (Backoff::after_fault(), Backoff::while_in_progress());
        Self { backoff, in_progress, due: None, throttled: false, repeats: false }
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

    /// DynamoDB still works on the transaction, which was first sent at this moment. Sends it again after a longer pause,
    /// and when DynamoDB can recover it.
    pub(crate) fn in_progress(&mut self, first: Instants) {
        self.due = Some(Due::InProgress(first));
        self.throttled = false;
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
        let pause = match due {
            Due::AtOnce => return Ok(now),
            Due::AfterPause => self.backoff.pause(port),
            Due::InProgress(first) => {
                let recoverable_in = RECOVERABLE.saturating_sub(now.instants.shortest_since(first));
                let longest = if recoverable_in.is_zero() { IN_PROGRESS.1 } else { recoverable_in };
                self.in_progress.pause(port).min(longest.max(SHORTEST_IN_PROGRESS))
            }
        };
        self.due = Some(Due::AtOnce);
        port.sleep(pause.min(now.time_left)).await;
        let now = port.now();
        if now.time_left.is_zero() { Err(OutOfTime) } else { Ok(now) }
    }
}

/// The caller's time is over.
#[derive(Debug)]
pub(crate) struct OutOfTime;
