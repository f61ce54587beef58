//! Reads from EventBridge's event which execution ended, and with which status.
use lambda_lock::MAX_NAME_BYTES;
use lambda_lock_functions::{Failure, Fields};
use serde_json::Value;

/// An execution and its status, from a "Step Functions Execution Status Change" event or from a "Durable Execution
/// Status Change" event of a durable function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The execution's ARN.
    pub(crate) execution: String,
    status: String,
    /// How often the execution had been redriven when it ended. A redriven execution keeps its ARN. `None` for a
    /// durable execution, which nobody can redrive.
    redrives: Option<u64>,
}

impl Ended {
    /// Reads the event. Other fields of the event are ignored.
    pub(crate) fn read(mut event: Fields) -> Result<Self, Failure> {
        let mut detail = event.object("detail", "detail.")?;
        if !detail.has("executionArn") && detail.has("durableExecutionArn") {
            let execution = detail.name("durableExecutionArn", MAX_NAME_BYTES)?;
            return Ok(Self { execution, status: detail.text("status")?, redrives: None });
        }
        let redrives = match detail.take("redriveCount") {
            None | Some(Value::Null) => None,
            Some(count) => Some(count.as_u64().ok_or_else(|| detail.malformed("redriveCount", "give a whole number"))?),
        };
        Ok(Self { execution: detail.name("executionArn", MAX_NAME_BYTES)?, status: detail.text("status")?, redrives })
    }

    /// Whether locks may be left behind. A running execution still uses its locks, and one that succeeded
    /// has released them. Step Functions says `ABORTED` of an execution that was stopped, and Lambda says `STOPPED`.
    pub(crate) fn leaves_locks(&self) -> bool {
        matches!(self.status.as_str(), "FAILED" | "TIMED_OUT" | "ABORTED" | "STOPPED")
    }

    /// Whether the owner's name shows that it acquired its lock after a redrive that followed this end.
    /// By convention an owner is the ARN, a slash and the redrive count, and optionally another slash and
    /// more. The function cannot tell this of owners with other names.
    pub(crate) fn is_outlived_by(&self, owner: &str) -> bool {
        let attempt = owner.strip_prefix(&self.execution).and_then(|rest| rest.strip_prefix('/'));
        let attempt = attempt.and_then(|rest| rest.split('/').next()?.parse::<u64>().ok());
        matches!((attempt, self.redrives), (Some(attempt), Some(ended)) if attempt > ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_owner_of_a_later_attempt_is_spared() {
        let ended = |redrives| Ended { execution: "arn:e:1".to_owned(), status: "FAILED".to_owned(), redrives };
        for (owner, outlives) in [
            ("arn:e:1/0", false),
            ("arn:e:1/1", false),
            ("arn:e:1/2", true),
            ("arn:e:1/2/7", true),
            ("arn:e:1/10", true),
            ("arn:e:1/1/7", false),
            ("arn:e:1", false),
            ("arn:e:1/", false),
            ("arn:e:1/two", false),
            ("arn:e:12/2", false),
            ("somebody", false),
        ] {
            assert_eq!(ended(Some(1)).is_outlived_by(owner), outlives, "{owner}");
            assert!(!ended(None).is_outlived_by(owner), "{owner}");
        }
    }
}
