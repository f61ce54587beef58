//! What the reasons of a cancelled transaction mean.

use super::sdk::item;
use crate::protocol::{Answer, FailedWrite, Rejection};
use aws_sdk_dynamodb::types::CancellationReason;

/// What the reasons of a cancelled transaction mean, whose write at `ours` is the lock's. The lock's
/// own condition comes first: whoever lost the lock must not be told of anything else.
pub(crate) fn meaning_of_reasons(reasons: &[CancellationReason], ours: usize) -> Answer {
    fn code(reason: &CancellationReason) -> &str {
        reason.code().unwrap_or("None")
    }
    // Without a reason for each write it is not known what was looked at.
    let Some(own) = reasons.get(ours) else { return Answer::Throttled };
    match code(own) {
        "ConditionalCheckFailed" => return Answer::ConditionFailed(own.item.clone().map(item)),
        "None" => {}
        // Nobody has looked at the lock's row, so nothing is known of it: whatever became of the other writes,
        // it takes another try to find out whether the lock is still ours.
        "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded" => return Answer::Throttled,
        _ => {
            let text = own.message().unwrap_or(code(own)).to_owned();
            return Answer::Rejected(Rejection::Invalid(text));
        }
    }
    let lasting = |reason: &CancellationReason| {
        !matches!(code(reason), "None" | "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded")
    };
    let failed: Vec<FailedWrite> = reasons
        .iter()
        .take(ours)
        .enumerate()
        .filter(|(_, reason)| lasting(reason))
        .map(|(index, reason)| FailedWrite {
            index,
            code: code(reason).to_owned(),
            message: reason.message().map(str::to_owned),
        })
        .collect();
    // Another transaction has one of the items, or they are throttled.
    if failed.is_empty() { Answer::Throttled } else { Answer::Cancelled(failed) }
}
