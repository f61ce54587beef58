//! What the error codes of DynamoDB mean for a request that failed.

use super::port::{Answer, Rejection};

impl Answer {
    /// Returns the meaning of a DynamoDB error, from its code and message. Use it only for a response with a status
    /// of 400 to 499. Any other response, and any unlisted code, is [`Unknown`](Answer::Unknown). A failed condition
    /// cannot be told by its code alone; see [`ConditionFailed`](Answer::ConditionFailed).
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
            Some("TransactionInProgressException") => Answer::InProgress,
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

/// Whether the table has other key attributes than this client is configured with, or of another type.
fn is_about_the_key(message: Option<&str>) -> bool {
    let message = message.unwrap_or_default();
    [
        "key element does not match the schema",
        "required keys was not given a value",
        "number of conditions on the keys",
        // A key attribute of another type.
        "Type mismatch for key",
    ]
    .iter()
    .any(|known| message.contains(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_attribute_of_another_type_is_a_matter_of_the_table() {
        for message in [
            "The provided key element does not match the schema",
            "One or more parameter values were invalid: Type mismatch for key pk expected: N actual: S",
        ] {
            let answer = Answer::of_error(Some("ValidationException"), Some(message));
            assert!(matches!(answer, Answer::Rejected(Rejection::Table(_))), "{message}: {answer:?}");
        }
    }
}
