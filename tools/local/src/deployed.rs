//! Helpers for the tests of deployed functions: the template as it is or changed, invocations that return a result
//! or an error name, functions that do not start, logs without secrets, and a lost response.

use crate::authorize::{Call, Fate, Grant, Role};
use crate::expansion::Expansion;
use crate::lambda::{Invocation, Outcome};
use crate::sample::Sample;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The response of a function, or its `errorType` and `errorMessage`.
pub type Answer = Result<Value, (String, String)>;

/// Returns the template expanded for a lock table of this name that exists already, and with that table. `None` as for
/// [`template`].
///
/// # Panics
/// Panics if it cannot be expanded for another reason, or has a lock table of its own.
pub fn template_for_existing_table(name: &str) -> Option<Expansion> {
    let own = template()?.tables.into_iter().find(|table| table["TableName"] == "LockTable");
    let mut own = own.unwrap_or_else(|| stop(&"the template has no lock table"));
    let parameter = format!("ExistingLockTable={name}");
    let mut template = Expansion::expand_with(&[&parameter]).unwrap_or_else(|error| stop(&error))?;
    if template.tables.iter().any(|table| table["TableName"] == "LockTable") {
        stop(&"there are two lock tables");
    }
    own["TableName"] = name.into();
    template.tables.push(own);
    Some(template)
}

/// Returns the expanded template, or `None` if the tools for it are missing, see [`Expansion::expand`].
///
/// # Panics
/// Panics if it cannot be expanded for another reason.
pub fn template() -> Option<Expansion> {
    static TEMPLATE: OnceLock<Option<Expansion>> = OnceLock::new();
    TEMPLATE.get_or_init(|| Expansion::expand().unwrap_or_else(|error| stop(&error))).clone()
}

impl Expansion {
    /// Returns the same template with these variables in the environment of the function with this binary.
    ///
    /// # Panics
    /// Panics if there is no such function.
    #[must_use]
    pub fn with(&self, binary: &str, environment: &[(&str, &str)]) -> Self {
        let mut changed = self.clone();
        let function = changed.functions.get_mut(binary).unwrap_or_else(|| stop(&binary));
        function.environment.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        changed
    }

    /// Returns the same template in which the function with this binary has the most verbose log level.
    ///
    /// # Panics
    /// Panics if there is no such function.
    #[must_use]
    pub fn loud(&self, binary: &str) -> Self {
        let loud = [("AWS_LAMBDA_LOG_LEVEL", "TRACE"), ("RUST_LOG", "trace"), ("AWS_LAMBDA_LOG_FORMAT", "JSON")];
        self.with(binary, &loud)
    }

    /// Returns the same template in which the function with this binary does not have this permission.
    ///
    /// # Panics
    /// Panics if the function did not have it.
    #[must_use]
    pub fn without(&self, binary: &str, permission: &Grant) -> Self {
        let mut less = self.clone();
        if !less.functions.get_mut(binary).is_some_and(|function| function.allows.remove(permission)) {
            stop(&format!("{binary} does not have the permission {permission}"));
        }
        less
    }

    /// Returns what the function with this binary is permitted. There is no wildcard in it.
    ///
    /// # Panics
    /// Panics if there is no such function, or if it has no permissions or one with a wildcard.
    #[track_caller]
    pub fn allows(&self, binary: &str) -> &Role {
        let allows = self.functions.get(binary).map_or_else(|| stop(&binary), |function| &function.allows);
        // Whoever has a task token names the state machine with it.
        let is_wide = |grant: &Grant| grant.action != "states:SendTaskSuccess" && grant.to_string().contains('*');
        if allows.is_empty() || allows.iter().any(is_wide) {
            stop(&format!("{binary} has the permissions {allows:?}"));
        }
        allows
    }
}

impl Sample {
    /// Invokes a function and waits for its response.
    ///
    /// # Panics
    /// Panics if it returns neither a result nor an error name.
    pub async fn ask(&self, function: &str, payload: &Value) -> Answer {
        match self.lambda.invoke(function, &payload.to_string()).await {
            Ok(invocation) => answered(invocation),
            Err(error) => stop(&error),
        }
    }
}

/// Returns the response of an invocation.
///
/// # Panics
/// Panics if it returned neither a result nor an error name.
pub fn answered(invocation: Invocation) -> Answer {
    match invocation.outcome {
        Outcome::Answer(answer) => Ok(serde_json::from_str(&answer).unwrap_or_else(|error| stop(&error))),
        Outcome::Error { error_type, message } => Err((error_type, message)),
        other => stop(&(other, invocation.logs)),
    }
}

/// Asserts that a function failed with this error name, and that its sentence contains this text.
///
/// # Panics
/// Panics if it did not.
#[track_caller]
pub fn assert_error(answer: Answer, error_type: &str, contains: &str) {
    match answer {
        Err((found, message)) if found == error_type && message.contains(contains) => {}
        other => stop(&format!("expected {error_type} with {contains:?}, got {other:?}")),
    }
}

/// Asserts that a function does not start, and that its sentence begins with this text.
///
/// # Panics
/// Panics if it starts, or if its sentence is another one.
#[track_caller]
pub fn assert_does_not_start(invocation: &Invocation, says: &str) {
    let sentence = format!("the function cannot run: {says}");
    if !matches!(invocation.outcome, Outcome::InitFailed(_)) || !invocation.logs.contains(&sentence) {
        stop(&format!("expected {sentence:?}, got {invocation:?}"));
    }
}

/// A text in payloads that must not be logged. A UUID, time, number or version cannot contain its letters, so it
/// is never in a log by chance.
pub const MARK: &str = "payload-zwyxq";
/// The same for fields that take only numbers. It is longer than all other numbers in a log.
pub const NUMBER_MARK: u64 = 7_311_731_173_117_311_731;

/// Returns the lines of metrics in these logs, after a script has held them against the format of CloudWatch.
///
/// # Panics
/// Panics if there is none, or if CloudWatch would not read one.
#[track_caller]
pub fn metrics(logs: &str) -> Vec<Value> {
    let lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<_> = lines.filter(|line| line.get("_aws").is_some()).collect();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    match crate::tools::with_template_tools("deploy/template/metrics.py", &text) {
        Ok(checked) if checked.status.success() => lines,
        Ok(checked) => stop(&(String::from_utf8_lossy(&checked.stderr), text)),
        Err(error) => stop(&error),
    }
}

/// Asserts that these logs do not contain [`MARK`], [`NUMBER_MARK`] or the function's credentials.
///
/// # Panics
/// Panics if they do.
#[track_caller]
pub fn assert_tells_nothing(logs: &str) {
    let number = NUMBER_MARK.to_string();
    let told = |line: &&str| [MARK, &number].iter().chain(&Sample::SECRETS).any(|mark| line.contains(mark));
    if let Some(line) = logs.lines().find(told) {
        stop(&line);
    }
}

/// Checks that there are lines of metrics, and that each one counts requests.
///
/// # Panics
/// If not.
#[track_caller]
pub fn assert_counted(logs: &str) {
    let metrics = metrics(logs);
    if metrics.is_empty() || !metrics.iter().all(|line| line["Requests"].as_u64() > Some(0)) {
        stop(&logs);
    }
}

/// Loses the response to the first request.
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
    fn random_values_cannot_contain_the_mark() {
        assert!(MARK.chars().any(|c| c.is_ascii_lowercase() && !c.is_ascii_hexdigit()), "a UUID, a version, a hash");
        assert!(NUMBER_MARK.to_string().len() > u64::MAX.to_string().len() - 2, "a time, a fencing token, a size");
        for version in (0..1000).map(|_| format!("ll1-{}", uuid::Uuid::new_v4().simple())) {
            assert_tells_nothing(&version);
        }
    }
}
