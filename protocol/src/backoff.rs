//! How long to pause: briefly after a fault, and longer and longer behind a holder.

use super::port::{Now, Port};
use std::time::Duration;

/// After a fault: 25 ms at first, then twice as long each time, up to 400 ms.
const FAULT: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(400));
/// While DynamoDB works on a transaction: half a second at least (AWS recommends it as the first pause), and up to 4 s.
const IN_PROGRESS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
/// Behind a holder: 30 ms at first, then half as long again each time.
pub(crate) const MIN_POLL: Duration = Duration::from_millis(30);
/// The longest pause of a caller without a ticket. The five reads of a second cost a third of what the same second costs a 128
/// MB function that waits. With a ticket, the line decides when to look.
pub(crate) const MAX_POLL: Duration = Duration::from_millis(250);

/// Contenders that may take a row at the same moment come at slightly different times.
const JITTER: Duration = Duration::from_millis(20);
const MIN_PAUSE: Duration = Duration::from_millis(1);

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

    pub(crate) fn while_in_progress() -> Self {
        Self { next: IN_PROGRESS.0, longest: IN_PROGRESS.1, growth: 2.0 }
    }

    pub(crate) fn behind_a_holder() -> Self {
        Self { next: MIN_POLL, longest: MAX_POLL, growth: 1.5 }
    }

    pub(crate) fn pause(&mut self, port: &mut impl Port) -> Duration {
        let nominal = self.next;
        self.next = nominal.mul_f64(self.growth).min(self.longest);
        varied(nominal, port)
    }
}

/// The longest pause of a call before it looks again at rows that it may not take. But for the jitter, it never ends beyond the
/// moment when the call may take a row if nobody changes it (`due_in`), nor beyond the end of the caller's time.
pub(crate) fn longest_pause(port: &mut impl Port, now: &Now, due_in: Duration) -> Duration {
    let jitter = JITTER.mul_f64(port.random_fraction());
    due_in.saturating_add(jitter).min(now.wait_left).max(MIN_PAUSE)
}

/// Returns a random duration between half and all of this one.
pub(crate) fn varied(nominal: Duration, port: &mut impl Port) -> Duration {
    nominal.mul_f64(0.5 + port.random_fraction() / 2.0)
}
