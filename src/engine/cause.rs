//! What an error of the SDK says beside its code and message, and about a transaction's single writes.

use aws_sdk_dynamodb::types::error::{
    ProvisionedThroughputExceededException, RequestLimitExceeded, ThrottlingException, TransactionCanceledException,
    TransactionConflictException,
};
use aws_sdk_dynamodb::types::{CancellationReason, ThrottlingReason};
use std::error::Error;
use std::iter::successors;

/// The reason of a cancelled transaction whose item another transaction has.
const CONFLICT: &str = "TransactionConflict";

pub(super) fn code(reason: &CancellationReason) -> &str {
    reason.code().unwrap_or("None")
}

/// Whether the same transaction may be applied later, as far as this write is concerned.
pub(super) fn passes(reason: &CancellationReason) -> bool {
    matches!(code(reason), CONFLICT | "ThrottlingError" | "ProvisionedThroughputExceeded")
}

/// Whether a request was refused because DynamoDB works on a transaction with one of its items.
pub(crate) fn is_transaction_conflict(error: &(dyn Error + 'static)) -> bool {
    links(error).any(|link| {
        let cancelled = link.downcast_ref::<TransactionCanceledException>();
        let mut reasons = cancelled.into_iter().flat_map(TransactionCanceledException::cancellation_reasons);
        link.is::<TransactionConflictException>() || reasons.any(|reason| code(reason) == CONFLICT)
    })
}

/// Why DynamoDB throttled a request, beyond the message that the error has anyway: which limit of which table or index was
/// exceeded. Of a cancelled transaction, why it was not carried out for now.
pub(crate) fn reasons_of(error: &(dyn Error + 'static)) -> Option<String> {
    let said: Vec<String> = links(error).find_map(|link| {
        let throttled = |reasons: &[ThrottlingReason]| reasons.iter().filter_map(throttling).collect();
        if let Some(error) = link.downcast_ref::<ProvisionedThroughputExceededException>() {
            Some(throttled(error.throttling_reasons()))
        } else if let Some(error) = link.downcast_ref::<RequestLimitExceeded>() {
            Some(throttled(error.throttling_reasons()))
        } else if let Some(error) = link.downcast_ref::<ThrottlingException>() {
            Some(throttled(error.throttling_reasons()))
        } else {
            let cancelled = link.downcast_ref::<TransactionCanceledException>()?;
            Some(cancelled.cancellation_reasons().iter().filter(|reason| passes(reason)).map(cancellation).collect())
        }
    })?;
    let mut distinct: Vec<String> = Vec::new();
    for one in said {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    Some(distinct.join(", ")).filter(|said| !said.is_empty())
}

fn throttling(ThrottlingReason { reason, resource, .. }: &ThrottlingReason) -> Option<String> {
    match (reason, resource) {
        (Some(reason), Some(resource)) => Some(format!("{reason} of {resource}")),
        (reason, resource) => reason.clone().or_else(|| resource.clone()),
    }
}

fn cancellation(reason: &CancellationReason) -> String {
    match reason.message() {
        Some(message) => format!("{} ({message})", code(reason)),
        None => code(reason).to_owned(),
    }
}

/// The error and its sources.
pub(super) fn links<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| (*error).source())
}
