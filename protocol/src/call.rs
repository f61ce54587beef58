//! The call of an operation: when it sends its next request, and what it may still say when it fails.
//!
//! A write without a response may have been applied, or may still be. From then on no failure may say that nothing was
//! applied: each one is of unknown outcome, until the operation has ruled out that write.

use super::backoff::Backoff;
use super::failure::Failure;
use super::instants::Instants;
use super::port::{Now, Port};
use super::reply::Fault;
use std::time::Duration;

/// The shortest pause while DynamoDB works on a transaction. A longer one ends when DynamoDB can recover it.
const MIN_IN_PROGRESS: Duration = Duration::from_millis(500);
/// A retry this long after a transaction was first sent makes DynamoDB recover it. AWS documents five seconds with
/// `TransactionInProgressException`, and the first request took some time to arrive.
const RECOVERABLE: Duration = Duration::from_millis(5250);

/// The requests of one operation, until it ends.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    after_fault: Backoff,
    in_progress: Backoff,
    due: Option<Due>,
    is_throttled: bool,
    /// `repeat` was called before.
    repeats: bool,
    /// How many writes in a row each followed a refusal.
    follow_ups: u32,
    /// A write may have been applied, or may still be.
    is_unknown: bool,
}

/// How the next request is sent, after a response that did not end the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    AtOnce,
    AfterPause,
    /// DynamoDB still works on the transaction that was first sent at this moment.
    InProgress(Instants),
}

impl Call {
    pub(crate) fn new() -> Self {
        Self {
            after_fault: Backoff::after_fault(),
            in_progress: Backoff::while_in_progress(),
            due: None,
            is_throttled: false,
            repeats: false,
            follow_ups: 0,
            is_unknown: false,
        }
    }

    /// Waits until the next request may be sent, never longer than the caller's time, and reads the clocks for it.
    /// Fails when the caller's time is over.
    pub(crate) async fn ready(&mut self, port: &mut impl Port) -> Result<Now, Failure> {
        let now = port.now();
        let Some(due) = self.due else { return Ok(now) };
        if now.time_left.is_zero() {
            return Err(self.out_of_time());
        }
        let pause = match due {
            Due::AtOnce => return Ok(now),
            Due::AfterPause => self.after_fault.pause(port),
            Due::InProgress(first) => {
                let recoverable_in = RECOVERABLE.saturating_sub(now.instants.shortest_since(first));
                let longest = if recoverable_in.is_zero() { Duration::MAX } else { recoverable_in };
                self.in_progress.pause(port).min(longest.max(MIN_IN_PROGRESS))
            }
        };
        self.due = Some(Due::AtOnce);
        port.sleep(&now, pause.min(now.time_left)).await;
        let now = port.now();
        if now.time_left.is_zero() { Err(self.out_of_time()) } else { Ok(now) }
    }

    /// Where others were faster each time, or DynamoDB throttled, a later call may succeed. Otherwise nothing is known.
    fn out_of_time(&self) -> Failure {
        let is_known = self.is_throttled || self.follow_ups > 0;
        self.fail(if is_known { Failure::Throttled } else { Failure::OutcomeUnknown })
    }

    /// The failure as the caller may be told of it.
    pub(crate) fn fail(&self, failure: Failure) -> Failure {
        if self.is_unknown { Failure::OutcomeUnknown } else { failure }
    }

    /// Whether a write of this call may have been applied, or may still be.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// A write of this call may have been applied, or may still be.
    pub(crate) fn may_be_applied(&mut self) {
        self.is_unknown = true;
    }

    /// No write of this call was applied, and none of them ever will be.
    pub(crate) fn ruled_out(&mut self) {
        self.is_unknown = false;
    }

    /// A write has no reply. Fails where a retry would too.
    pub(crate) fn write_failed(&mut self, fault: Fault) -> Result<(), Failure> {
        match fault {
            Fault::Throttled => self.throttled(),
            Fault::Unknown => self.no_response(),
            Fault::Rejected(rejection) => return Err(self.fail(Failure::Rejected(rejection))),
        }
        Ok(())
    }

    /// A read has no reply. Fails where a retry would too.
    pub(crate) fn read_failed(&mut self, fault: Fault) -> Result<(), Failure> {
        match fault {
            Fault::Throttled => self.throttled(),
            Fault::Unknown => self.after_pause(),
            Fault::Rejected(rejection) => return Err(self.fail(Failure::Rejected(rejection))),
        }
        Ok(())
    }

    /// A write had no response. Sends the next request like a [repetition](Call::repeat).
    pub(crate) fn no_response(&mut self) {
        self.repeat();
        self.may_be_applied();
    }

    /// The response showed the row. Sends the next request even if the caller has no time left.
    pub(crate) fn answered(&mut self) {
        self.next(None);
    }

    /// Sends the next request at once, if the caller still has time.
    pub(crate) fn at_once(&mut self) {
        self.next(Some(Due::AtOnce));
    }

    /// Sends the next request after a pause, if the caller still has time.
    pub(crate) fn after_pause(&mut self) {
        self.next(Some(Due::AfterPause));
    }

    /// Repeats a request: the first time at once, later after a pause, so that it does not race a busy copy of the lock.
    pub(crate) fn repeat(&mut self) {
        let is_first = !self.repeats && !self.is_unknown;
        self.repeats = true;
        if is_first { self.at_once() } else { self.after_pause() }
    }

    /// DynamoDB throttled the request. Sends the next one after a pause.
    pub(crate) fn throttled(&mut self) {
        self.after_pause();
        self.is_throttled = true;
    }

    /// DynamoDB still works on the transaction, which was first sent at this moment. Sends it again after a longer pause,
    /// and when DynamoDB can recover it.
    pub(crate) fn in_progress(&mut self, first: Instants) {
        self.next(Some(Due::InProgress(first)));
        self.may_be_applied();
    }

    /// Sends the write that follows a refusal. Another contender can be faster each time. So the second one in a row is sent
    /// only while the caller has time left, and the third one pauses first.
    pub(crate) fn follow_up(&mut self) {
        self.follow_ups += 1;
        match self.follow_ups {
            1 => {}
            2 => self.at_once(),
            _ => self.after_pause(),
        }
    }

    /// Waits for a holder, so no write follows the refusal.
    pub(crate) fn waits(&mut self) {
        self.follow_ups = 0;
    }

    fn next(&mut self, due: Option<Due>) {
        self.due = due;
        self.is_throttled = false;
    }
}
