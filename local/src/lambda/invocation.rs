//! What became of an invocation.

use std::time::Duration;

/// One invocation, from its delivery to its end.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What the function's context says.
    pub request_id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What the process wrote to stdout and stderr, in its order. After a cold start it begins with what
    /// was written before the first poll.
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
    /// The deadline passed, and the process was killed.
    TimedOut,
    /// The process ended in the middle of the invocation, such as `exit status 1` or `signal: killed`.
    Exited(String),
    /// The process never polled, so nothing was delivered: `errorType: errorMessage`.
    InitFailed(String),
}
