//! What DynamoDB's error codes mean for a request that was refused.

use super::port::{Answer, Rejection};

impl Answer {
    /// The answer that an error of DynamoDB stands for, by its code and message: only for an answer with
    /// a status of 400 to 499. Anything else, and any code that is not known here, is
    /// [`Unknown`](Answer::Unknown). A refused condition is not told by its code alone: see
    /// [`Refused`](Answer::ConditionFailed).
    pub fn of_error(code: Option<&str>, message: Option<&str>) -> Self {
        let text = || message.or(code).unwrap_or("no reason was given").to_owned();
        match code {
            Some(
                "ProvisionedThroughputExceededException"
                | "ThrottlingException"
                | "Throttling"
                | "RequestLimitExceeded"
                | "TransactionConflictException"
                | "ReplicatedWriteConflictException"
                | "ResourceInUseException",
            ) => Answer::Throttled,
            Some("ResourceNotFoundException") => Answer::Rejected(Rejection::Table(text())),
            Some("ValidationException") if is_about_the_key(message) => Answer::Rejected(Rejection::Table(text())),
            Some(
                "ValidationException"
                | "ItemCollectionSizeLimitExceededException"
                | "SerializationException"
                | "IdempotentParameterMismatchException",
            ) => Answer::Rejected(Rejection::Invalid(text())),
            Some(
                "AccessDeniedException"
                | "AccessDenied"
                | "UnrecognizedClientException"
                | "InvalidSignatureException"
                | "IncompleteSignatureException"
                | "IncompleteSignature"
                | "MissingAuthenticationToken"
                | "MissingAuthenticationTokenException"
                | "InvalidClientTokenId"
                | "ExpiredTokenException"
                | "ExpiredToken"
                | "OptInRequired",
            ) => Answer::Rejected(Rejection::Denied(text())),
            _ => Answer::Unknown,
        }
    }
}

/// The table has other key attributes than this client was told.
fn is_about_the_key(message: Option<&str>) -> bool {
    let message = message.unwrap_or_default();
    ["key element does not match the schema", "required keys was not given a value", "number of conditions on the keys"]
        .iter()
        .any(|known| message.contains(known))
}
