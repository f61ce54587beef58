//! The time that an action may use.

use lambda_lock::Budget;
use lambda_runtime::Context;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The part of the invocation that is reserved for returning the response. After the deadline the
/// function cannot return anything.
const TO_ANSWER: Duration = Duration::from_millis(500);
/// The time of an invocation whose deadline is not known. It is enough for three requests.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(3);

/// How long this invocation may send requests to DynamoDB.
#[derive(Debug)]
pub(crate) struct Time {
    left: Option<Duration>,
}

impl Time {
    pub(crate) fn of(context: &Context) -> Self {
        Self { left: Budget::from(context).remaining().map(|remaining| remaining.saturating_sub(TO_ANSWER)) }
    }

    /// Whether the response to a request that is sent now would come too late.
    pub(crate) fn is_over(&self) -> bool {
        self.left.is_some_and(|left| left.is_zero())
    }

    /// Returns a budget that waits for at most this long. The lease may be longer than the
    /// invocation, because the caller works elsewhere. So the lease is also the grace of the
    /// budget.
    pub(crate) fn waiting(&self, wait: Duration, lease: Duration) -> Budget {
        let left = self.left.unwrap_or(wait.saturating_add(WITHOUT_DEADLINE));
        Budget::lasting(left).reserve(left.saturating_sub(wait)).grace(lease)
    }
}

/// Returns a time in epoch milliseconds, as times are written in JSON.
pub(crate) fn epoch_millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
