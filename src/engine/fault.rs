//! Which fault an error of the SDK means for an operation.

use super::attributes::item;
use super::cause::{code, links, passes};
use super::error::BoxError;
use super::interceptor::NotDynamoDb;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::CancellationReason;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use lambda_lock_protocol::{FailedWrite, Fault, Refusal, Rejection, Reply, Transacted};
use std::error::Error;
use std::fmt;
use std::iter::successors;

/// A request was rejected for certain only by a 4xx with an error code that is known here. **Everything else is an
/// unknown outcome**, also a 200 that cannot be read.
pub(crate) fn fault_of_error<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Fault {
    match error {
        SdkError::ServiceError(context) if context.raw().status().is_client_error() => {
            Fault::of_error(context.err().code(), context.err().message())
        }
        _ => Fault::Unknown,
    }
}

/// The meaning of a failure before anything was sent: the SDK has no credentials, no Region or no endpoint.
pub(crate) fn fault_of_unsent(error: &(dyn Error + 'static)) -> Fault {
    let reason = successors(Some(error), |error| (*error).source()).last().unwrap_or(error);
    let reason = match reason.to_string() {
        // The SDK's sentence has a paragraph about its code generator.
        long if long.contains("no identity resolver") => {
            "the SDK's configuration has no credentials provider".to_owned()
        }
        reason => reason,
    };
    Fault::Rejected(Rejection::Denied(format!("no request was sent: {reason}")))
}

/// The error of the SDK as the cause of what a call returns. The SDK does not tell the status of a response that it cannot
/// read.
pub(crate) fn cause_of<E>(fault: Option<&Fault>, error: SdkError<E, HttpResponse>) -> BoxError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let status = error.raw_response().map(|response| response.status().as_u16());
    // The SDK tells what its interceptors are called.
    let not_dynamodb = links(&error).find_map(|link| link.downcast_ref::<NotDynamoDb>()).copied();
    let source = not_dynamodb.map_or_else(|| error.into(), BoxError::from);
    match status {
        Some(status) if fault == Some(&Fault::Unknown) => Box::new(Unusable { status, source }),
        _ => source,
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

/// Adds the name of the table to a fault that is about the table: DynamoDB does not say which table it has not
/// found, and a deployment may have several.
pub(crate) fn with_table_name(table: &str, fault: Fault) -> Fault {
    match fault {
        Fault::Rejected(Rejection::Table(message)) => {
            Fault::Rejected(Rejection::Table(format!("table {table:?}: {message}")))
        }
        other => other,
    }
}

/// A cancelled transaction, whose writes from `first` on are those of the locks. The locks' own conditions come first:
/// whoever lost a lock must not be told of anything else.
pub(crate) fn reply_of_cancellation(reasons: &[CancellationReason], first: usize, locks: usize) -> Reply<Transacted> {
    // Without a reason for each write it is not known what was looked at.
    let Some(own) = reasons.get(first..first + locks) else { return Err(Fault::Throttled) };
    let refusal = |(index, reason): (usize, &CancellationReason)| {
        let row = || reason.item.clone().map(item);
        (code(reason) == "ConditionalCheckFailed").then(|| Refusal { index, row: row() })
    };
    let refusals: Vec<Refusal> = own.iter().enumerate().filter_map(refusal).collect();
    if !refusals.is_empty() {
        return Ok(Transacted::Refused(refusals));
    }
    if let Some(other) = own.iter().find(|reason| code(reason) != "None" && !passes(reason)) {
        let message = other.message().unwrap_or(code(other));
        return Err(match code(other) {
            // As for a request of its own: it may be about the table's key.
            "ValidationError" => Fault::of_error(Some("ValidationException"), Some(message)),
            _ => Fault::Rejected(Rejection::Invalid(message.to_owned())),
        });
    }
    // Nobody has looked at the row of a lock, so nothing is known of it: whatever became of the other writes, it takes
    // another try to find out whether the lock is still ours.
    if own.iter().any(passes) {
        return Err(Fault::Throttled);
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
    if failed.is_empty() { Err(Fault::Throttled) } else { Ok(Transacted::Cancelled(failed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_with_a_key_of_another_type_is_a_matter_of_the_table() {
        let reason = |code: &str, message: &str| CancellationReason::builder().code(code).message(message).build();
        let key = reason("ValidationError", "The provided key element does not match the schema");
        let reply = reply_of_cancellation(&[reason("None", ""), key], 1, 1);
        assert!(matches!(reply, Err(Fault::Rejected(Rejection::Table(_)))), "{reply:?}");
        let other = reason("ValidationError", "The item is too large");
        let reply = reply_of_cancellation(&[other], 0, 1);
        assert!(matches!(reply, Err(Fault::Rejected(Rejection::Invalid(_)))), "{reply:?}");
    }
}
