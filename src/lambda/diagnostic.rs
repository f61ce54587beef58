//! Errors by name: what leaves a function so that `Retry` and `Catch` can match it.

use crate::error::{Error, ErrorKind};
use lambda_runtime::Diagnostic;

/// The name under which an error leaves a function.
///
/// | `errorType` | kinds | the caller should |
/// |---|---|---|
/// | `LockHeld` | [`Held`](ErrorKind::Held) | retry later |
/// | `LockLost` | [`Lost`](ErrorKind::Lost) | stop, do not write |
/// | `LockUnknown` | [`Unknown`](ErrorKind::Unknown), [`Unavailable`](ErrorKind::Unavailable), [`OutOfTime`](ErrorKind::OutOfTime) | retry the same request |
/// | `WorkFailed` | [`Cancelled`](ErrorKind::Cancelled), [`FailedBefore`](ErrorKind::FailedBefore), [`CutShort`](ErrorKind::CutShort) | as the work demands |
/// | `InvalidRequest` | [`InvalidRequest`](ErrorKind::InvalidRequest), [`PayloadMismatch`](ErrorKind::PayloadMismatch) | fix the caller |
/// | `InvalidRecord` | [`InvalidRecord`](ErrorKind::InvalidRecord) | look at the row |
/// | `LockTableError` | [`Table`](ErrorKind::Table), [`Denied`](ErrorKind::Denied) | fix the deployment |
pub fn error_type(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Held(_) => "LockHeld",
        ErrorKind::Lost => "LockLost",
        // Out of time: DynamoDB could not be asked any more, and another invocation can.
        ErrorKind::Unknown | ErrorKind::Unavailable | ErrorKind::OutOfTime { .. } => "LockUnknown",
        ErrorKind::Cancelled(_) | ErrorKind::FailedBefore { .. } | ErrorKind::CutShort => "WorkFailed",
        ErrorKind::InvalidRequest | ErrorKind::PayloadMismatch => "InvalidRequest",
        ErrorKind::InvalidRecord => "InvalidRecord",
        ErrorKind::Table | ErrorKind::Denied => "LockTableError",
    }
}

/// The error's [name](error_type) and its sentence.
impl From<Error> for Diagnostic {
    fn from(error: Error) -> Self {
        Diagnostic { error_type: error_type(&error).to_owned(), error_message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Held;
    use crate::protocol::{Invalid, LockKey, Rejection};
    use std::time::Duration;

    #[test]
    fn every_kind_leaves_a_function_under_its_name() {
        let key = LockKey::from("k");
        let observation = serde_json::from_str(r#"{"version":"v","leaseMillis":1,"unchangedForMillis":0}"#).unwrap();
        let held =
            Held { holder: "a".to_owned(), lease_ends_at: None, retry_after: Duration::from_secs(3), observation };
        for (error, name) in [
            (Error::from_held(&key, held), "LockHeld"),
            (Error::lost(&key), "LockLost"),
            (Error::unknown(&key, "acquired"), "LockUnknown"),
            (Error::unavailable(&key, "acquired"), "LockUnknown"),
            (Error::out_of_time(&key, "budget", Duration::ZERO, Duration::ZERO), "LockUnknown"),
            (Error::from(Invalid::new("no")), "InvalidRequest"),
            (Error::rejected(Some(&key), Rejection::Invalid("no".to_owned())), "InvalidRequest"),
            (Error::rejected(Some(&key), Rejection::Table("no".to_owned())), "LockTableError"),
            (Error::rejected(Some(&key), Rejection::Denied("no".to_owned())), "LockTableError"),
        ] {
            let sentence = error.to_string();
            let diagnostic = Diagnostic::from(error);
            assert_eq!((diagnostic.error_type.as_str(), diagnostic.error_message), (name, sentence));
        }
    }
}
