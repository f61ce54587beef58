//! What Lambda itself reports about an invocation: its failure, and the lines around the function's
//! log.

use super::Function;
use super::invocation::{Invocation, Outcome};

/// Returns `errorType` and `errorMessage`. They are in Lambda's words if the function has reported
/// none.
pub(super) fn failure(function: &Function, invocation: &Invocation) -> Option<(String, String)> {
    let in_words = |what: &str| format!("RequestId: {} Error: {what}", invocation.request_id);
    match &invocation.outcome {
        Outcome::Answer(_) => None,
        Outcome::Error { error_type, message } => Some((error_type.clone(), message.clone())),
        Outcome::TimedOut => {
            let seconds = function.timeout.as_secs_f64();
            let message = in_words(&format!("Task timed out after {seconds:.2} seconds"));
            Some(("Sandbox.Timedout".to_owned(), message))
        }
        Outcome::Exited(how) => {
            let message = match how.as_str() {
                "exit status 0" => in_words("Runtime exited without providing a reason"),
                how => in_words(&format!("Runtime exited with error: {how}")),
            };
            Some(("Runtime.ExitError".to_owned(), message))
        }
        Outcome::InitFailed(why) => {
            let (error_type, message) = why.split_once(": ").unwrap_or(("Runtime.Unknown", why));
            Some((error_type.to_owned(), message.to_owned()))
        }
    }
}

pub(super) fn start(invocation: &Invocation) -> String {
    format!("START RequestId: {} Version: $LATEST", invocation.request_id)
}

/// Returns the lines after the function's own.
pub(super) fn end(function: &Function, invocation: &Invocation) -> Vec<String> {
    let Invocation { request_id, duration, init, max_rss_kb, .. } = invocation;
    let millis = duration.as_secs_f64() * 1000.0;
    let mut lines = Vec::new();
    // A function that reported its failure has also logged it.
    if let Some((error_type, message)) = failure(function, invocation)
        && !matches!(invocation.outcome, Outcome::Error { .. })
    {
        lines.push(format!("{message} {error_type}"));
    }
    lines.push(format!("END RequestId: {request_id}"));
    let mut report = format!(
        "REPORT RequestId: {request_id}\tDuration: {millis:.2} ms\tBilled Duration: {:.0} ms\tMemory Size: {} MB",
        millis.ceil(),
        function.memory_mb,
    );
    if let Some(kilobytes) = max_rss_kb {
        report.push_str(&format!("\tMax Memory Used: {} MB", kilobytes.div_ceil(1024)));
    }
    if let Some(init) = init {
        report.push_str(&format!("\tInit Duration: {:.2} ms", init.as_secs_f64() * 1000.0));
    }
    lines.push(report);
    lines
}
