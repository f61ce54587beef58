//! Which answer an error of the SDK means for an operation.

use super::attributes::item;
use super::error::BoxError;
use crate::protocol::{Answer, FailedWrite, Rejection};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::CancellationReason;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

/// A request was rejected for certain only by a 4xx with an error code that is known here. **Everything else is an
/// unknown outcome**, also a 200 that cannot be read.
pub(crate) fn answer_of_error<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Answer {
    match error {
        SdkError::ServiceError(context) if context.raw().status().is_client_error() => {
            Answer::of_error(context.err().code(), context.err().message())
        }
        // It never left this process: no credentials, no Region, no endpoint.
        SdkError::ConstructionFailure(_) => {
            Answer::Rejected(Rejection::Denied("the request could not be built or signed".to_owned()))
        }
        _ => Answer::Unknown,
    }
}

/// A failure before anything was sent: the SDK has no credentials, no Region or no endpoint.
pub(crate) fn answer_of_unsent(cause: Option<&BoxError>) -> Answer {
    let mut reason = cause.map(|cause| &**cause as &dyn std::error::Error);
    while let Some(deeper) = reason.and_then(std::error::Error::source) {
        reason = Some(deeper);
    }
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Answer::Rejected(Rejection::Denied(format!("no request was sent{reason}")))
}

/// Adds the name of the table to an answer that is about the table: DynamoDB does not say which table it has not
/// found, and a deployment may have several.
pub(crate) fn with_table_name(table: &str, answer: Answer) -> Answer {
    match answer {
        Answer::Rejected(Rejection::Table(message)) => {
            Answer::Rejected(Rejection::Table(format!("table {table:?}: {message}")))
        }
        other => other,
    }
}

/// A cancelled transaction, whose writes from `first` on are those of the locks. The locks' own conditions come first:
/// whoever lost a lock must not be told of anything else.
pub(crate) fn answer_of_cancellation(reasons: &[CancellationReason], first: usize, locks: usize) -> Answer {
    fn code(reason: &CancellationReason) -> &str {
        reason.code().unwrap_or("None")
    }
    let passes = |reason: &&CancellationReason| {
        matches!(code(reason), "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded")
    };
    // Without a reason for each write it is not known what was looked at.
    let Some(own) = reasons.get(first..first + locks) else { return Answer::Throttled };
    let refused =
        |reason: &CancellationReason| (code(reason) == "ConditionalCheckFailed").then(|| reason.item.clone().map(item));
    let refused: Vec<_> = own.iter().map(refused).collect();
    if refused.iter().any(Option::is_some) {
        return Answer::Refused(refused);
    }
    if let Some(other) = own.iter().find(|reason| code(reason) != "None" && !passes(reason)) {
        return Answer::Rejected(Rejection::Invalid(other.message().unwrap_or(code(other)).to_owned()));
    }
    // Nobody has looked at the row of a lock, so nothing is known of it: whatever became of the other writes, it takes
    // another try to find out whether the lock is still ours.
    if own.iter().any(|reason| passes(&reason)) {
        return Answer::Throttled;
    }
    let failed: Vec<FailedWrite> = reasons
        .iter()
        .take(first)
        .enumerate()
        .filter(|(_, reason)| code(reason) != "None" && !passes(reason))
        .map(|(index, reason)| FailedWrite {
            index,
            code: code(reason).to_owned(),
            message: reason.message().map(str::to_owned),
        })
        .collect();
    // Another transaction has one of the items, or they are throttled.
    if failed.is_empty() { Answer::Throttled } else { Answer::Cancelled(failed) }
}
