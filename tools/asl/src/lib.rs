//! Locks in a Step Functions state machine that uses DynamoDB alone.
//!
//! A state machine can call DynamoDB without a function. [`states()`] writes the states that acquire, renew and release
//! one lock in this way. Their texts and values are those of the crate's own requests ([`Expression::of`]), so such a
//! machine shares its locks with `lock-task` and with every other caller of this crate. `docs/without-a-function.md`
//! says when to use it.
//!
//! ```
//! use lambda_lock_asl::{Options, states};
//!
//! let states = states(&Options::default(), "my-command")?;
//! assert!(states.to_string().contains("attribute_not_exists(#pk)"));
//! # Ok::<(), lambda_lock_asl::Error>(())
//! ```
//!
//! | file | idea |
//! |---|---|
//! | `options` | what to lock, and how; each option is checked here |
//! | `requests` | the crate's requests as arguments of a state |
//! | `look` | what the state `Look` makes of a row |
//! | `states` | the states, what follows them, and what they retry and catch |
//! | `sample` | a whole state machine |
//! | `policy` | the least policy of its role |
//! | `json`, `jsonata` | JSON in the order in which it was written, and texts of JSONata |
//!
//! [`Expression::of`]: lambda_lock_protocol::Expression::of

mod json;
mod jsonata;
mod look;
mod options;
mod policy;
mod requests;
mod sample;
mod states;
#[cfg(test)]
mod tests;

pub use json::{Json, Object};
pub use options::{Error, OWNER, Options};

/// The names of errors that say that a function may still run. A step with one of them leaves its lock to its lease.
pub const MAY_STILL_RUN: [&str; 8] = [
    "States.Timeout",
    "States.HeartbeatTimeout",
    "Sandbox.Timedout",
    "Lambda.Unknown",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.ClientExecutionTimeoutException",
];

/// Returns the states of the lock as a part of a state machine, in JSONata. The two steps of the work are missing:
/// `first_step` and `second_step` of the options name them. `command` is what wrote the states; the comment names it.
///
/// The states leave `$lock` behind, which is what `lock-task` calls `lock`, and expect `$failure` with `Error` and
/// `Cause` from a step that goes to `UnlockAfterFailure` or `LeftToItsLease`.
///
/// # Errors
/// Returns an error if an option cannot be used.
pub fn states(options: &Options, command: &str) -> Result<Object, Error> {
    let states = states::acquire(options)?.with_all(states::renew(options)?).with_all(states::release(options)?);
    Ok(Object::new()
        .with("Comment", states::provenance(command))
        .with("QueryLanguage", "JSONata")
        .with("StartAt", "Lock")
        .with("States", states))
}

/// Returns a whole state machine whose two steps call the function `${WorkArn}`. `command` is what wrote it.
///
/// # Errors
/// Returns an error if an option cannot be used.
pub fn sample(options: &Options, command: &str) -> Result<Object, Error> {
    sample::machine(options, command)
}

/// Returns the least policy of the state machine's role, for locks whose keys match one of these patterns (`*` and `?`
/// as in IAM). The resource is the ARN of the table, or the CloudFormation function that makes it of a name.
///
/// # Errors
/// Returns an error if an option cannot be used, or without a pattern.
pub fn policy(options: &Options, keys: &[String]) -> Result<Object, Error> {
    policy::policy(options, keys)
}
