//! What the tests of deployed functions share: the template as it is or changed, invocations that answer
//! or fail by name, a start that fails, logs that tell nothing, and an answer that is lost.

use crate::authorize::{Call, Fate, Grant, Role};
use crate::expansion::Expansion;
use crate::lambda::{Invocation, Outcome};
use crate::sample::Sample;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a function answered, or `errorType` and `errorMessage`.
pub type Answer = Result<Value, (String, String)>;

/// The template as it is; `None` where it cannot be expanded, see [`Expansion::expand`].
///
/// # Panics
/// When it cannot be expanded for any other reason than missing tools.
pub fn template() -> Option<Expansion> {
    static TEMPLATE: OnceLock<Option<Expansion>> = OnceLock::new();
    TEMPLATE.get_or_init(|| Expansion::expand().unwrap_or_else(|error| stop(&error))).clone()
}

impl Expansion {
    /// The same template, with these variables in the environment of the function with this binary.
    ///
    /// # Panics
    /// When there is no such function.
    #[must_use]
    pub fn with(&self, binary: &str, environment: &[(&str, &str)]) -> Self {
        let mut changed = self.clone();
        let function = changed.functions.get_mut(binary).unwrap_or_else(|| stop(&binary));
        function.environment.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        changed
    }

    /// The same template, in which the function with this binary logs all that it can be made to log.
    ///
    /// # Panics
    /// When there is no such function.
    #[must_use]
    pub fn loud(&self, binary: &str) -> Self {
        let loud = [("AWS_LAMBDA_LOG_LEVEL", "TRACE"), ("RUST_LOG", "trace"), ("AWS_LAMBDA_LOG_FORMAT", "JSON")];
        self.with(binary, &loud)
    }

    /// The same template, in which the function with this binary has lost this permission.
    ///
    /// # Panics
    /// When it did not have it.
    #[must_use]
    pub fn without(&self, binary: &str, permission: &Grant) -> Self {
        let mut less = self.clone();
        if !less.functions.get_mut(binary).is_some_and(|function| function.allows.remove(permission)) {
            stop(&format!("{binary} may not do {permission} as it is"));
        }
        less
    }

    /// What the function with this binary may do, without any wildcard.
    ///
    /// # Panics
    /// When there is no such function, when it may do nothing, or with a wildcard.
    #[track_caller]
    pub fn allows(&self, binary: &str) -> &Role {
        let allows = self.functions.get(binary).map_or_else(|| stop(&binary), |function| &function.allows);
        if allows.is_empty() || allows.iter().any(|grant| grant.to_string().contains('*')) {
            stop(&format!("{binary} may do {allows:?}"));
        }
        allows
    }
}

impl Sample {
    /// Invokes a function and waits for its answer.
    ///
    /// # Panics
    /// When it neither answers nor fails by name.
    pub async fn ask(&self, function: &str, payload: &Value) -> Answer {
        match self.lambda.invoke(function, &payload.to_string()).await {
            Ok(invocation) => answered(invocation),
            Err(error) => stop(&error),
        }
    }
}

/// What an invocation answered.
///
/// # Panics
/// When it neither answered nor failed by name.
pub fn answered(invocation: Invocation) -> Answer {
    match invocation.outcome {
        Outcome::Answer(answer) => Ok(serde_json::from_str(&answer).unwrap_or_else(|error| stop(&error))),
        Outcome::Error { error_type, message } => Err((error_type, message)),
        other => stop(&(other, invocation.logs)),
    }
}

/// Asserts that a function failed under this name, with a sentence that contains this.
///
/// # Panics
/// When it did not.
#[track_caller]
pub fn assert_error(answer: Answer, error_type: &str, contains: &str) {
    match answer {
        Err((found, message)) if found == error_type && message.contains(contains) => {}
        other => stop(&format!("expected {error_type} with {contains:?}, got {other:?}")),
    }
}

/// Asserts that a function does not start, and says why in a sentence that begins like this.
///
/// # Panics
/// When it starts, or says something else.
#[track_caller]
pub fn assert_does_not_start(invocation: &Invocation, says: &str) {
    let sentence = format!("the function cannot run: {says}");
    if !matches!(invocation.outcome, Outcome::InitFailed(_)) || !invocation.logs.contains(&sentence) {
        stop(&format!("expected {sentence:?}, got {invocation:?}"));
    }
}

/// What a payload has in it that must not be logged: letters that no UUID, time, number or version can hold, since
/// one that could be there by chance would fail a test for nothing.
pub const MARK: &str = "payload-zwyxq";
/// The same where only a number can stand: longer than all others that are logged.
pub const NUMBER_MARK: u64 = 7_311_731_173_117_311_731;

/// Asserts that no line of these logs has [`MARK`], [`NUMBER_MARK`] or the function's credentials in it.
///
/// # Panics
/// When one has.
#[track_caller]
pub fn assert_tells_nothing(logs: &str) {
    let number = NUMBER_MARK.to_string();
    let told = |line: &&str| [MARK, &number].iter().chain(&Sample::SECRETS).any(|mark| line.contains(mark));
    if let Some(line) = logs.lines().find(told) {
        stop(&line);
    }
}

/// Loses the answer of the first request.
pub fn first_answer_lost() -> impl Fn(&Call) -> Fate + Send + Sync {
    let calls = AtomicU32::new(0);
    move |_| if calls.fetch_add(1, Ordering::SeqCst) == 0 { Fate::AnswerLost } else { Fate::Answered }
}

#[track_caller]
#[expect(clippy::panic, reason = "a test that cannot go on fails")]
fn stop(reason: &dyn Debug) -> ! {
    panic!("{reason:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_drawn_at_random_can_hold_the_mark() {
        assert!(MARK.chars().any(|c| c.is_ascii_lowercase() && !c.is_ascii_hexdigit()), "a UUID, a version, a hash");
        assert!(NUMBER_MARK.to_string().len() > u64::MAX.to_string().len() - 2, "a time, a fencing token, a size");
        for version in (0..1000).map(|_| format!("ll1-{}", uuid::Uuid::new_v4().simple())) {
            assert_tells_nothing(&version);
        }
    }
}
