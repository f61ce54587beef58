//! Reports each operation at its end: on its span, and as one event that subscribers can count.

use super::Engine;
use super::error::Error;
use lambda_lock_protocol::LockKey;
use std::fmt;
use std::time::Duration;
use tracing::Span;

/// The target of the events.
const TARGET: &str = "lambda_lock::operation";

/// Emits an event at the level that the client was built with.
macro_rules! event {
    ($at_info:expr, $($fields:tt)+) => {
        if $at_info { tracing::info!(target: TARGET, $($fields)+) } else { tracing::debug!(target: TARGET, $($fields)+) }
    };
}

/// What an operation did until it ended.
#[derive(Debug)]
pub(crate) struct Report {
    /// Entered for each request.
    pub(super) span: Span,
    at_info: bool,
    pub(super) requests: u32,
    pub(super) waited: Duration,
    /// The last write for a grant replaces a holder that has not released.
    pub(super) takes_over: bool,
    /// By how much DynamoDB's clock was ahead of the wall clock in the last response.
    pub(super) clock_offset_millis: Option<i64>,
}

impl Report {
    /// Of an operation that has sent nothing yet.
    pub(super) fn begun(span: &Span, at_info: bool) -> Self {
        let (span, waited) = (span.clone(), Duration::ZERO);
        Self { span, at_info, requests: 0, waited, takes_over: false, clock_offset_millis: None }
    }

    /// Reports the end of an operation on this lock.
    pub(crate) fn ended(self, operation: &str, key: &LockKey, outcome: &str) {
        self.tell(operation, key, outcome, None, None);
    }

    /// Reports that an operation ended with a grant, and its fencing token.
    pub(crate) fn granted(self, operation: &str, key: &LockKey, token: u64) {
        self.tell(operation, key, "granted", Some(token), None);
    }

    /// Reports the end of a release, and how much of the lease was used.
    pub(crate) fn released(self, key: &LockKey, lease_age: Option<Duration>, outcome: &str) {
        self.tell("release", key, outcome, None, lease_age);
    }

    /// Reports that an operation failed.
    pub(crate) fn failed(self, operation: &str, key: &LockKey, error: &Error) {
        self.ended(operation, key, &format!("{:?}", error.kind()));
    }

    fn tell(self, operation: &str, key: &LockKey, outcome: &str, token: Option<u64>, lease_age: Option<Duration>) {
        let Self { span, at_info, requests, waited, takes_over, clock_offset_millis } = self;
        let waited_ms = millis(waited);
        // All at once: a subscriber that writes JSON reads and writes all fields of the span for each call.
        match token {
            Some(token) => tracing::record_all!(span, token, attempts = requests, waited_ms, outcome),
            None => tracing::record_all!(span, attempts = requests, waited_ms, outcome),
        };
        let takeover = (outcome == "granted").then_some(takes_over);
        event!(
            at_info, parent: &span, operation, %key, outcome, requests, waited_ms, takeover,
            lease_age_ms = lease_age.map(millis), clock_offset_ms = clock_offset_millis
        );
    }
}

/// Reports that work was stopped because the lease of this lock ended.
pub(crate) fn cut_short(engine: &Engine, key: &dyn fmt::Display) {
    event!(engine.operations_at_info, operation = "work", %key, outcome = "CutShort");
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
