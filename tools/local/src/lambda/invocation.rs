//! The result of an invocation.

use std::time::Duration;

/// One invocation, from its delivery to its end.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The request id in the function's context.
    pub request_id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What the process wrote to stdout and stderr meanwhile, in order. After a cold start this begins with the
    /// output before the first poll. If the process had several invocations, this has the output of all of them.
    pub logs: String,
    /// The environment that ran it.
    pub environment: u32,
    /// Whether the process was started for this invocation.
    pub cold_start: bool,
    /// The time from delivery to the response or to the end of the process. Zero when nothing was
    /// delivered.
    pub duration: Duration,
    /// The time from the start of the process to its first poll, for cold starts.
    pub init: Option<Duration>,
    /// The time from the start of the process to its first response, for cold starts.
    pub first_answer: Option<Duration>,
    /// The most memory that the process has ever used, if the system reports it.
    pub max_rss_kb: Option<u64>,
}

impl Invocation {
    /// An invocation that has not begun.
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
    /// The function returned this response.
    Answer(String),
    /// The function failed and reported an error.
    Error {
        /// The `errorType`, which `Retry` and `Catch` match.
        error_type: String,
        /// The `errorMessage`.
        message: String,
    },
    /// The deadline passed, and the process was killed if the function [kills](super::Function::kills).
    TimedOut,
    /// The process ended during the invocation, such as `exit status 1` or `signal: killed`.
    Exited(String),
    /// The process never polled, so nothing was delivered. The text is `errorType: errorMessage`.
    InitFailed(String),
}
