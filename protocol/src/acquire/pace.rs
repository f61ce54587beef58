//! How long a call pauses before it looks again at rows that it may not take.

use crate::backoff::Backoff;
use crate::port::{Now, Port};
use std::time::Duration;

/// Contenders that may take a row at the same moment come at slightly different times.
const JITTER: Duration = Duration::from_millis(20);
const MIN_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Pace {
    poll: Backoff,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { poll: Backoff::behind_a_holder() }
    }

    /// The pause before the next look, which is `usual` as a rule. But for the jitter, it never ends beyond the moment when the
    /// call may take a row if nobody changes it (`due_in`), nor beyond the end of the caller's time.
    pub(super) fn pause<P: Port>(
        &mut self,
        port: &mut P,
        now: &Now,
        due_in: Duration,
        usual: impl FnOnce(&mut Backoff, &mut P) -> Duration,
    ) -> Duration {
        let jitter = JITTER.mul_f64(port.random_fraction());
        usual(&mut self.poll, port).min(due_in.saturating_add(jitter)).min(now.wait_left).max(MIN_PAUSE)
    }
}
