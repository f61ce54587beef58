//! What the tests of deployed functions share: the template as it is or changed, invocations that answer
//! or fail by name, and an answer that is lost.

use crate::authorize::{Call, Fate};
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
