//! What a response means for an operation.

use super::value::Item;

/// What is known of a request after its response, or after the time for one: the reply, or why there is none.
pub type Reply<T> = Result<T, Fault>;

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not applied, but a retry may succeed: the request was throttled, or another transaction has the row.
    Throttled,
    /// Not applied, and a retry would fail in the same way.
    Rejected(Rejection),
    /// It is unknown whether the request was applied: there was no usable response, or DynamoDB failed internally.
    Unknown,
}

/// Why DynamoDB rejected the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// DynamoDB found the request invalid, by itself or together with the row.
    Invalid(String),
    /// The table is missing, or has another key schema.
    Table(String),
    /// Credentials or permissions are missing.
    Denied(String),
}

/// The reply to a write that went alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Contains the attributes that the request asked for.
    Applied(Item),
    /// The condition did not hold. Contains the row, if there is one and it came with the refusal.
    Refused(Option<Item>),
}

/// The reply to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    Applied,
    /// Not applied: the conditions of these locks did not hold. Never empty. Those of other locks may not have held either.
    Refused(Vec<Refusal>),
    /// Not applied: DynamoDB cancelled the transaction because of the caller's own writes.
    Cancelled(Vec<FailedWrite>),
    /// It is unknown whether the transaction was applied: DynamoDB still works on an earlier copy of it.
    InProgress,
}

/// A lock whose condition refused a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The position among the requests of the locks, from 0.
    pub index: usize,
    /// The row, if there is one and it came with the refusal.
    pub row: Option<Item>,
}

/// One of the caller's writes that made DynamoDB cancel a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWrite {
    /// The position among the caller's writes, from 0.
    pub index: usize,
    /// DynamoDB's code, such as `ConditionalCheckFailed`.
    pub code: String,
    /// DynamoDB's message.
    pub message: Option<String>,
}

/// What a read of several rows says of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowRead {
    /// DynamoDB has not read it.
    Unread,
    /// There is none.
    Missing,
    Row(Item),
}

impl Fault {
    /// Returns the meaning of a DynamoDB error, from its code and message. Use it only for a response with a status
    /// of 400 to 499. Any other response, and any unlisted code, is [`Unknown`](Fault::Unknown). A failed condition
    /// cannot be told by its code alone, and is no fault: see [`Written::Refused`].
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
            ) => Fault::Throttled,
            Some("ResourceNotFoundException") => Fault::Rejected(Rejection::Table(text())),
            Some("ValidationException") if is_about_the_key(message) => Fault::Rejected(Rejection::Table(text())),
            Some(
                "ValidationException"
                | "ItemCollectionSizeLimitExceededException"
                | "SerializationException"
                | "IdempotentParameterMismatchException",
            ) => Fault::Rejected(Rejection::Invalid(text())),
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
            ) => Fault::Rejected(Rejection::Denied(text())),
            _ => Fault::Unknown,
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
            let fault = Fault::of_error(Some("ValidationException"), Some(message));
            assert!(matches!(fault, Fault::Rejected(Rejection::Table(_))), "{message}: {fault:?}");
        }
    }
}
