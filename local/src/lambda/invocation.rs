//! What became of an invocation.

use std::time::Duration;

/// One invocation, from its delivery to its end.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What the function's context says.
    pub request_id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What the process wrote to stdout and stderr meanwhile, in its order. After a cold start it begins with what
    /// was written before the first poll. Of several invocations at once, each has the lines of all.
    pub logs: String,
    /// Which environment answered.
    pub environment: u32,
    /// Whether the process was started for this invocation.
    pub cold_start: bool,
    /// From delivery to the answer, or to the end of the process. Zero when nothing was delivered.
    pub duration: Duration,
    /// From the start of the process to its first poll, for cold starts.
    pub init: Option<Duration>,
    /// From the start of the process to its first answer, for cold starts.
    pub first_answer: Option<Duration>,
    /// The most memory that the process has ever used, where the system says so.
    pub max_rss_kb: Option<u64>,
}

impl Invocation {
    /// One of which nothing is known yet.
    pub(super) fn new(request_id: &str, environment: u32) -> Self {
        Self {
            request_id: request_id.to_owned(),
            outcome: Outcome::TimedOut,
            logs: String::new(),
            environment,
            cold_start: false,
            duration: Duration::ZERO,
            init: None,
            first_answer: None,
            max_rss_kb: None,
        }
    }
}

/// How an invocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered.
    Answer(String),
    /// The function failed, and said how.
    Error {
        /// `errorType`: what `Retry` and `Catch` match.
        error_type: String,
        /// `errorMessage`.
        message: String,
    },
    /// The deadline passed. The process was killed, unless the function [does not kill](super::Function::kills).
    TimedOut,
    /// The process ended in the middle of the invocation, such as `exit status 1` or `signal: killed`.
    Exited(String),
    /// The process never polled, so nothing was delivered: `errorType: errorMessage`.
    InitFailed(String),
}
