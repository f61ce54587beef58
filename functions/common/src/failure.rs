//! The failure of a function: an error name for `Retry` and `Catch`, a sentence for people, and one log line.

use crate::environment::ALLOW_SIMULATE;
use crate::quote::{beginning, short};
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use lambda_lock::LockKey;
use lambda_lock::lambda::error_type;
use lambda_runtime::Diagnostic;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

/// The most bytes of an `errorMessage`. Quoted parts are short, but DynamoDB or the guarded work may add long
/// texts. The limit is larger than the longest key.
pub const MAX_MESSAGE_BYTES: usize = 8192;

/// A failure that a function returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    error_type: &'static str,
    message: String,
    /// The key of the lock, if it is known.
    key: Option<String>,
}

/// The state of a lock after the work under it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterWork {
    /// The lock was released.
    Free,
    /// The lock was not released, or the outcome of the release is unknown. The lease ends at this time, by our
    /// own wall clock.
    FreeBy(Option<SystemTime>),
    /// The lock was lost during the work.
    Lost,
}

impl AfterWork {
    /// Adds to the answer of work that succeeded that the lock was no longer ours when it ended, in the words of
    /// `lock-task`'s `release`. It is no error: a caller that repeats the call would do the work once more.
    #[must_use]
    pub fn told_in(self, mut answer: Value) -> Value {
        if self == Self::Lost {
            answer["released"] = false.into();
            answer["reason"] = "gone".into();
        }
        answer
    }
}

impl Failure {
    fn new(error_type: &'static str, message: String) -> Self {
        Self { error_type, message, key: None }
    }

    /// The event is malformed. The sentence begins with the name of the field.
    pub fn invalid_request(sentence: impl Into<String>) -> Self {
        Self::new("InvalidRequest", sentence.into())
    }

    /// The event asks for a failure in this field, and the environment does not allow it.
    pub fn no_simulation(field: &str) -> Self {
        Self::invalid_request(format!(
            "{field} is for demonstrations and tests, and this function simulates nothing: leave it out, or set \
             {ALLOW_SIMULATE} to true where no harm can be done"
        ))
    }

    /// The guarded work failed. [`leaving`](Failure::leaving) adds the state of its lock.
    pub fn work_failed(reason: &dyn fmt::Display) -> Self {
        Self::new("WorkFailed", reason.to_string())
    }

    /// A step of a workflow failed. The workflow still holds its lock.
    pub fn step_failed(reason: &dyn fmt::Display) -> Self {
        Self::new("WorkFailed", format!("the step failed; release the lock before anything else: {reason}"))
    }

    /// Another caller holds the lock.
    pub fn held(sentence: impl Into<String>) -> Self {
        Self::new("LockHeld", sentence.into())
    }

    /// The grant is no longer current, because the lock's row or a fenced resource shows a newer one.
    pub fn lost(sentence: impl Into<String>) -> Self {
        Self::new("LockLost", sentence.into())
    }

    /// The lock table cannot be used as it is deployed.
    pub fn lock_table(sentence: impl Into<String>) -> Self {
        Self::new("LockTableError", sentence.into())
    }

    /// The row in the table is not a valid lock record.
    pub fn invalid_record(sentence: impl Into<String>) -> Self {
        Self::new("InvalidRecord", sentence.into())
    }

    /// DynamoDB gave no usable response in time.
    pub fn unknown(sentence: impl Into<String>) -> Self {
        Self::new("LockUnknown", sentence.into())
    }

    /// Returns the same failure with this text before its sentence.
    #[must_use]
    pub fn because_of(self, what: &str) -> Self {
        Self { key: self.key, ..Self::new(self.error_type, format!("{what}: {}", self.message)) }
    }

    /// Adds the state of the lock to the failure of the work. Any other failure is returned unchanged, because it
    /// is not about the work.
    #[must_use]
    pub fn leaving(self, lock: AfterWork) -> Self {
        if !self.is_of_the_work() {
            return self;
        }
        match lock {
            AfterWork::Free => self.because_of("the work failed, and the lock is free again"),
            AfterWork::Lost => self.because_of("the work failed, and the lock was lost before it ended"),
            AfterWork::FreeBy(end) => {
                let at = end.and_then(time).map_or(String::new(), |end| format!(", at {end}"));
                self.because_of(&format!("the work failed, and the lock is free at the latest when its lease ends{at}"))
            }
        }
    }

    /// Returns the same failure with the key of its lock. The log line then has the key.
    #[must_use]
    pub fn of_lock(self, key: &LockKey) -> Self {
        let whole = key.to_string();
        let key = short(&whole).to_string();
        // Messages of the crate contain the whole key. It is replaced by the shortened one.
        let message = if key == whole { self.message } else { self.message.replace(&whole, &key) };
        Self { message, key: Some(key), ..self }
    }

    /// Sets the lock that the failure is about, if its caller knows the lock by another key than its row has. The
    /// sentence has the caller's key, and the log line has the row's key. A sentence about the row itself does not
    /// change.
    #[must_use]
    pub fn of_row(self, row: &LockKey, key: &LockKey) -> Self {
        let whole = row.to_string();
        let message = ["lock", "semaphore"].iter().fold(self.message.clone(), |message, what| {
            message.replace(&format!("{what} {whole}"), &format!("{what} {key}"))
        });
        let told = Self { message, ..self }.of_lock(key);
        Self { key: Some(short(&whole).to_string()), ..told }
    }

    /// The same for several locks, each with its row's key and the caller's key. The log line has the first row's key.
    #[must_use]
    pub fn of_rows(self, locks: &[(LockKey, LockKey)]) -> Self {
        // A key that is the beginning of another one comes after it.
        let mut longest_first: Vec<_> = locks.iter().map(|(row, key)| (row.to_string(), key.to_string())).collect();
        longest_first.sort_by_key(|(row, _)| std::cmp::Reverse(row.len()));
        let message = longest_first.iter().fold(self.message.clone(), |message, (row, key)| {
            // A sentence about the row itself has it in quotation marks.
            message.replace(&format!(" {row}"), &format!(" {}", short(key)))
        });
        let key = locks.first().map(|(row, _)| short(&row.to_string()).to_string());
        Self { message, key, ..self }
    }

    /// Whether this is the failure of the work.
    pub fn is_of_the_work(&self) -> bool {
        self.error_type == "WorkFailed"
    }

    /// The error name, which `Retry` and `Catch` match.
    pub fn error_type(&self) -> &'static str {
        self.error_type
    }

    /// The sentence for people, of at most [`MAX_MESSAGE_BYTES`] bytes. It is cut only here, because keys in it become
    /// shorter.
    pub fn message(&self) -> Cow<'_, str> {
        match beginning(&self.message, MAX_MESSAGE_BYTES) {
            whole if whole.len() == self.message.len() => Cow::Borrowed(whole),
            _ => Cow::Owned(format!("{}… (cut)", beginning(&self.message, MAX_MESSAGE_BYTES - "… (cut)".len()))),
        }
    }

    /// Writes one log line: INFO when nobody has to act, WARN when callers handle it, ERROR when somebody has to
    /// check a row or the deployment. `message_id` names the message of a batch.
    pub fn log(&self, message_id: Option<&str>) {
        let (error_type, message, key) = (self.error_type, self.message(), self.key.as_deref());
        match error_type {
            "LockHeld" => tracing::info!(error_type, key, message_id, "{message}"),
            "LockTableError" | "InvalidRecord" => tracing::error!(error_type, key, message_id, "{message}"),
            _ => tracing::warn!(error_type, key, message_id, "{message}"),
        }
    }
}

/// Formats a time as RFC 3339 in UTC, with milliseconds.
fn time(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    DateTime::from_millis(i64::try_from(since.as_millis()).ok()?).fmt(Format::DateTime).ok()
}

/// The sentence has the cause behind it, where there was no usable response.
impl From<lambda_lock::Error> for Failure {
    fn from(error: lambda_lock::Error) -> Self {
        Self::new(error_type(&error), Diagnostic::from(error).error_message)
    }
}

/// What an error and its sources say, as one text: why there was no response.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let said = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    said.reduce(|said, cause| if said.ends_with(&cause) { said } else { format!("{said}: {cause}") })
        .unwrap_or_default()
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        Diagnostic { error_type: failure.error_type.to_owned(), error_message: failure.message().into_owned() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_failure_keeps_its_error_name() {
        let diagnostic = Diagnostic::from(Failure::work_failed(&"no paper"));
        assert_eq!(diagnostic.error_type, "WorkFailed");
        assert!(diagnostic.error_message.ends_with("no paper"), "{}", diagnostic.error_message);
    }

    #[test]
    fn failed_work_reports_the_known_state_of_its_lock() {
        let end = UNIX_EPOCH + Duration::from_millis(1_760_000_300_120);
        for (lock, says) in [
            (AfterWork::Free, "and the lock is free again: no paper"),
            (AfterWork::Lost, "and the lock was lost before it ended: no paper"),
            (AfterWork::FreeBy(None), "free at the latest when its lease ends: no paper"),
            (
                AfterWork::FreeBy(Some(end)),
                "free at the latest when its lease ends, at 2025-10-09T08:58:20.12Z: no paper",
            ),
        ] {
            let failure = Failure::work_failed(&"no paper").leaving(lock);
            assert!(failure.message().ends_with(says), "{}", failure.message());
        }
        let other = Failure::unknown("ask again");
        assert_eq!(other.clone().leaving(AfterWork::Free), other);
    }

    #[test]
    fn a_message_is_limited_whatever_it_quotes() {
        for length in [MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES + 1, 1_000_000] {
            let failure = Failure::work_failed(&"ü".repeat(length / 2)).because_of("once more");
            assert!(failure.message().len() <= MAX_MESSAGE_BYTES, "{}", failure.message().len());
            assert!(failure.message().ends_with("… (cut)"), "{}", failure.message());
        }
        let whole = "x".repeat(MAX_MESSAGE_BYTES);
        assert_eq!(Failure::lost(whole.clone()).message(), whole);
    }

    #[test]
    fn a_long_key_is_quoted_in_part() {
        let key = LockKey::from("k".repeat(2048));
        let failure = Failure::lost(format!("the lock {key} is no longer ours: stop")).of_lock(&key);
        let (first, last) = ("k".repeat(16), "k".repeat(48));
        let expected = format!("the lock {first}…{last} (64 of 2048 bytes) is no longer ours: stop");
        assert_eq!(failure.message(), expected);
    }

    #[test]
    fn the_sentence_has_the_caller_s_key_and_the_log_line_the_row_s() {
        for (row, key) in [
            (LockKey::from("blue/customer-7"), LockKey::from("customer-7")),
            (("blue/customer-7", "invoice-12").into(), ("customer-7", "invoice-12").into()),
        ] {
            let failure = Failure::lost(format!("the lock {row} is no longer ours: stop")).of_row(&row, &key);

            assert_eq!(failure.message(), format!("the lock {key} is no longer ours: stop"));
            assert_eq!(failure.key, Some(row.to_string()));
            let about_the_row = format!("the row {row} is not a lock record");
            assert_eq!(Failure::invalid_record(about_the_row.as_str()).of_row(&row, &key).message(), about_the_row);
        }
    }
}
