//! Which answer an error of the SDK means for an operation.

use super::attributes::item;
use super::cause::{code, passes};
use super::error::BoxError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::CancellationReason;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use lambda_lock_protocol::{Answer, FailedWrite, Rejection};
use std::error::Error;
use std::fmt;
use std::iter::successors;

/// A request was rejected for certain only by a 4xx with an error code that is known here. **Everything else is an
/// unknown outcome**, also a 200 that cannot be read.
pub(crate) fn answer_of_error<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Answer {
    match error {
        SdkError::ServiceError(context) if context.raw().status().is_client_error() => {
            Answer::of_error(context.err().code(), context.err().message())
        }
        _ => Answer::Unknown,
    }
}

/// The meaning of a failure before anything was sent: the SDK has no credentials, no Region or no endpoint.
pub(crate) fn answer_of_unsent(error: &(dyn Error + 'static)) -> Answer {
    let reason = successors(Some(error), |error| (*error).source()).last().unwrap_or(error);
    let reason = match reason.to_string() {
        // The SDK's sentence has a paragraph about its code generator.
        long if long.contains("no identity resolver") => {
            "the SDK's configuration has no credentials provider".to_owned()
        }
        reason => reason,
    };
    Answer::Rejected(Rejection::Denied(format!("no request was sent: {reason}")))
}

/// The error of the SDK as the cause of what a call returns. The SDK does not tell the status of a response that it cannot
/// read.
pub(crate) fn cause_of<E>(answer: &Answer, error: SdkError<E, HttpResponse>) -> BoxError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match error.raw_response().map(|response| response.status().as_u16()) {
        Some(status) if *answer == Answer::Unknown => Box::new(Unusable { status, source: error.into() }),
        _ => error.into(),
    }
}

/// A response that does not tell whether the request was applied.
#[derive(Debug)]
struct Unusable {
    status: u16,
    source: BoxError,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP status {}", self.status)
    }
}

impl Error for Unusable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
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
    // Without a reason for each write it is not known what was looked at.
    let Some(own) = reasons.get(first..first + locks) else { return Answer::Throttled };
    let refused =
        |reason: &CancellationReason| (code(reason) == "ConditionalCheckFailed").then(|| reason.item.clone().map(item));
    let refused: Vec<_> = own.iter().map(refused).collect();
    if refused.iter().any(Option::is_some) {
        return Answer::Refused(refused);
    }
    if let Some(other) = own.iter().find(|reason| code(reason) != "None" && !passes(reason)) {
        let message = other.message().unwrap_or(code(other));
        return match code(other) {
            // As for a request of its own: it may be about the table's key.
            "ValidationError" => Answer::of_error(Some("ValidationException"), Some(message)),
            _ => Answer::Rejected(Rejection::Invalid(message.to_owned())),
        };
    }
    // Nobody has looked at the row of a lock, so nothing is known of it: whatever became of the other writes, it takes
    // another try to find out whether the lock is still ours.
    if own.iter().any(passes) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_with_a_key_of_another_type_is_a_matter_of_the_table() {
        let reason = |code: &str, message: &str| CancellationReason::builder().code(code).message(message).build();
        let key = reason("ValidationError", "The provided key element does not match the schema");
        let answer = answer_of_cancellation(&[reason("None", ""), key], 1, 1);
        assert!(matches!(answer, Answer::Rejected(Rejection::Table(_))), "{answer:?}");
        let other = reason("ValidationError", "The item is too large");
        let answer = answer_of_cancellation(&[other], 0, 1);
        assert!(matches!(answer, Answer::Rejected(Rejection::Invalid(_))), "{answer:?}");
    }
}
