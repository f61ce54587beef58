//! Names for errors, which `Retry` and `Catch` can match when an error leaves a function.

use crate::engine::error::{Error, ErrorKind, causes};
use lambda_runtime::Diagnostic;
use std::error::Error as StdError;
use std::iter::successors;

/// The name under which an error leaves a function.
///
/// | `errorType` | kinds | the caller should |
/// |---|---|---|
/// | `LockHeld` | [`Held`](ErrorKind::Held) | retry later |
/// | `LockLost` | [`Lost`](ErrorKind::Lost) | stop, do not write |
/// | `LockUnknown` | [`Unknown`](ErrorKind::Unknown), [`Unavailable`](ErrorKind::Unavailable), [`OutOfTime`](ErrorKind::OutOfTime) | retry the same request; after a commit, [`resolve_commit`](crate::Lock::resolve_commit) first |
/// | `WorkFailed` | [`Cancelled`](ErrorKind::Cancelled), [`CutShort`](ErrorKind::CutShort) | as the work demands |
/// | `WorkFailedBefore` | [`FailedBefore`](ErrorKind::FailedBefore) | do not retry: an earlier attempt failed for good |
/// | `InvalidRequest` | [`InvalidRequest`](ErrorKind::InvalidRequest), [`PayloadMismatch`](ErrorKind::PayloadMismatch) | fix the caller |
/// | `InvalidRecord` | [`InvalidRecord`](ErrorKind::InvalidRecord) | look at the row |
/// | `LockTableError` | [`Table`](ErrorKind::Table), [`Denied`](ErrorKind::Denied) | fix the deployment |
pub fn error_type(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Held => "LockHeld",
        ErrorKind::Lost => "LockLost",
        // When time has run out, this invocation could send no more requests to DynamoDB, but another invocation can.
        ErrorKind::Unknown | ErrorKind::Unavailable | ErrorKind::OutOfTime => "LockUnknown",
        ErrorKind::Cancelled | ErrorKind::CutShort => "WorkFailed",
        ErrorKind::FailedBefore => "WorkFailedBefore",
        ErrorKind::InvalidRequest | ErrorKind::PayloadMismatch => "InvalidRequest",
        ErrorKind::InvalidRecord => "InvalidRecord",
        ErrorKind::Table | ErrorKind::Denied => "LockTableError",
    }
}

/// Uses the error's [name](error_type) and its text. Where DynamoDB gave no usable response, or refused for now, the cause
/// stands behind it.
impl From<Error> for Diagnostic {
    fn from(error: Error) -> Self {
        let cause = cause(&error).map(|cause| format!(" (cause: {cause})")).unwrap_or_default();
        Diagnostic { error_type: error_type(&error).to_owned(), error_message: format!("{error}{cause}") }
    }
}

/// Why there was no usable response. The text of any other error has its reason.
fn cause(error: &Error) -> Option<String> {
    causes(error).filter(|_| matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable))
}

/// Converts the error of a handler that returns `Result<_, lambda_runtime::Error>`, so that a lock's error that was
/// returned with `?` keeps its [name](error_type).
///
/// `lambda_runtime::Error` is a box, and by itself the runtime names every boxed error by the type of the box:
/// `LockHeld` would leave the function under a name that no `Retry` or `Catch` expects. This function looks for an
/// [`Error`](crate::Error) in the box, and in the errors that it returns as its [`source`](std::error::Error::source).
/// The text is that of the whole error. The text of the lock's error is added if the whole error does not contain it, and why
/// DynamoDB gave no usable response.
/// Any other error is converted as the runtime does it.
///
/// ```no_run
/// use lambda_lock::{Budget, LockClient, lambda};
/// use lambda_runtime::{Error, LambdaEvent, service_fn};
///
/// async fn handler(event: LambdaEvent<String>, locks: &LockClient) -> Result<(), Error> {
///     let lock = locks.acquire(&event.payload).within(&Budget::from(&event.context)).await?;
///     std::fs::write("/tmp/report", "done")?; // errors of any kind
///     lock.release().await?;
///     Ok(())
/// }
///
/// # async fn example(locks: LockClient) -> Result<(), Error> {
/// let locks = &locks;
/// lambda_runtime::run(service_fn(async move |event| handler(event, locks).await.map_err(lambda::diagnostic))).await
/// # }
/// ```
///
/// [`LockLayer`](super::LockLayer) does this by itself.
pub fn diagnostic(error: impl Into<lambda_runtime::Error>) -> Diagnostic {
    let error = error.into();
    named(&*error).unwrap_or_else(|| error.into())
}

/// Returns the diagnostic of the first lock error among an error and its sources.
pub(super) fn named(error: &(dyn StdError + 'static)) -> Option<Diagnostic> {
    let lock = successors(Some(error), |error| (*error).source()).find_map(|error| error.downcast_ref::<Error>())?;
    let (whole, own) = (error.to_string(), lock.to_string());
    let mut error_message = if whole.contains(&own) { whole } else { format!("{whole}: {own}") };
    if let Some(cause) = cause(lock).filter(|cause| !error_message.contains(cause)) {
        error_message += &format!(" (cause: {cause})");
    }
    Some(Diagnostic { error_type: error_type(lock).to_owned(), error_message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::error::Refusal;
    use lambda_lock_protocol::{Failure, Invalid, LockKey, Operation, Rejection};
    use std::time::Duration;

    #[test]
    fn every_kind_leaves_a_function_under_its_name() {
        let key = LockKey::from("k");
        let failed = |failure| Error::of_failure(failure, Operation::Acquire, &[&key], None);
        let observation = serde_json::from_str(r#"{"version":"v","leaseMillis":1,"unchangedForMillis":0}"#).unwrap();
        let refusal = Refusal {
            key: key.clone(),
            holder: "a".to_owned(),
            lease_ends_at: None,
            retry_after: Duration::from_secs(3),
            waiting: 0,
            left_to_line: false,
            freeze_reason: None,
            observation,
            attributes: Default::default(),
        };
        for (error, name) in [
            (Error::refused(vec![refusal], 1), "LockHeld"),
            (Error::lost(&[&key]), "LockLost"),
            (failed(Failure::OutcomeUnknown), "LockUnknown"),
            (failed(Failure::Throttled), "LockUnknown"),
            (Error::out_of_time(&[&key], "budget", Duration::ZERO, Duration::ZERO), "LockUnknown"),
            (Error::from(Invalid::new("no")), "InvalidRequest"),
            (failed(Failure::Rejected(Rejection::Invalid("no".to_owned()))), "InvalidRequest"),
            (failed(Failure::Rejected(Rejection::Table("no".to_owned()))), "LockTableError"),
            (failed(Failure::Rejected(Rejection::Denied("no".to_owned()))), "LockTableError"),
        ] {
            let sentence = error.to_string();
            let diagnostic = Diagnostic::from(error);
            assert_eq!((diagnostic.error_type.as_str(), diagnostic.error_message), (name, sentence));
        }
    }

    #[cfg(feature = "once")]
    #[test]
    fn work_that_failed_for_good_is_told_from_work_that_fails() {
        let error = crate::once::errors::failed_before(&LockKey::from("k"), "\"no\"".to_owned());
        assert_eq!(error_type(&error), "WorkFailedBefore");
    }

    /// An error of another type, around an error.
    #[derive(Debug)]
    struct Around(&'static str, lambda_runtime::Error);

    impl std::fmt::Display for Around {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Around {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&*self.1)
        }
    }

    #[test]
    fn a_lock_error_in_a_box_keeps_its_name_however_deep_it_lies() {
        let lost = || Error::lost(&[&LockKey::from("k")]);
        let sentence = lost().to_string();
        let boxed: lambda_runtime::Error = lost().into();
        let twice: lambda_runtime::Error = Box::new(Around("no bill", Box::new(Around("no page", lost().into()))));
        for (error, message) in
            [(lost().into(), sentence.clone()), (boxed, sentence.clone()), (twice, format!("no bill: {sentence}"))]
        {
            let diagnostic = diagnostic(error);
            assert_eq!((diagnostic.error_type.as_str(), diagnostic.error_message), ("LockLost", message));
        }
        let handler = || -> Result<(), lambda_runtime::Error> { Err(lost())? };
        assert_eq!(handler().map_err(diagnostic).unwrap_err().error_type, "LockLost");
    }

    #[test]
    fn a_sentence_that_quotes_the_lock_s_does_not_say_it_twice() {
        let lost = Error::lost(&[&LockKey::from("k")]);
        let sentence = format!("no bill: {lost}");
        let quotes: lambda_runtime::Error = Box::new(Around(String::leak(sentence.clone()), lost.into()));
        assert_eq!(diagnostic(quotes).error_message, sentence);
    }

    #[test]
    fn any_other_error_is_what_the_runtime_makes_of_it() {
        let other = || lambda_runtime::Error::from(std::io::Error::other("no paper"));
        assert_eq!(diagnostic(other()), Diagnostic::from(other()));
    }
}
