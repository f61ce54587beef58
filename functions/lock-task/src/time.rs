//! How much time an action has.

use lambda_lock::Budget;
use lambda_runtime::Context;
use std::time::Duration;

/// What is kept of the invocation for answering: whoever is killed at the deadline answers nothing.
const TO_ANSWER: Duration = Duration::from_millis(500);
/// The time of an invocation whose deadline nobody knows: that of three requests.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(3);

/// How long this invocation can ask DynamoDB.
#[derive(Debug)]
pub(crate) struct Time {
    left: Option<Duration>,
}

impl Time {
    pub(crate) fn of(context: &Context) -> Self {
        Self { left: Budget::from(context).remaining().map(|remaining| remaining.saturating_sub(TO_ANSWER)) }
    }

    /// A budget to wait for at most this long, for a lock whose lease may outlive the invocation:
    /// whoever gets the lock works elsewhere, so the lease is its own grace.
    pub(crate) fn waiting(&self, wait: Duration, lease: Duration) -> Budget {
        let left = self.left.unwrap_or(wait.saturating_add(WITHOUT_DEADLINE));
        Budget::lasting(left).reserve(left.saturating_sub(wait)).grace(lease)
    }
}
