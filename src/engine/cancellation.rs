//! What the reasons of a cancelled transaction mean.

use super::sdk::item;
use crate::protocol::{Answer, FailedWrite, Rejection};
use aws_sdk_dynamodb::types::CancellationReason;

/// Returns the meaning of the reasons of a cancelled transaction. The lock's write is the one at `ours`. Its
/// condition is checked first, because a holder that lost the lock must learn that before anything else.
pub(crate) fn meaning_of_reasons(reasons: &[CancellationReason], ours: usize) -> Answer {
    fn code(reason: &CancellationReason) -> &str {
        reason.code().unwrap_or("None")
    }
    // Without a reason for each write it is unknown which writes DynamoDB checked.
    let Some(own) = reasons.get(ours) else { return Answer::Throttled };
    match code(own) {
        "ConditionalCheckFailed" => return Answer::ConditionFailed(own.item.clone().map(item)),
        "None" => {}
        // DynamoDB did not check the lock's row, so it is unknown whether the lock is still ours. A retry is needed
        // to find out, whatever happened to the other writes.
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
    // Another transaction has one of the items, or requests for them are throttled.
    if failed.is_empty() { Answer::Throttled } else { Answer::Cancelled(failed) }
}
