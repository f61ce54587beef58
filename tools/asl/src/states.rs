//! The states that acquire, renew and release one lock.
//!
//! ```text
//! Lock ──► first step ──► Renew ──► second step ──► Unlock
//!  │ refused        any failure ..................... UnlockAfterFailure ──► Failed
//!  │                a step that may still run ....... LeftToItsLease ──► Failed
//!  ▼
//! Look ──► Decide ─┬ no row, or released by one of us ..... Lock
//!                  ├ other releases, dead, or our own ..... Take ──► first step
//!                  ├ held ................................. WaitForHolder ──► Look
//!                  └ no lock record ....................... InvalidRecord
//! ```

use crate::json::{Json, Object};
use crate::jsonata::query;
use crate::look;
use crate::options::{Error, Options};
use crate::requests::{self, Requests};
use lambda_lock_protocol::schema::{ENDS, VERSION};
use lambda_lock_protocol::{OURS, millis_rounded_up};
use std::time::Duration;

const UPDATE: &str = "updateItem";
const GET: &str = "getItem";
/// The condition of a write did not hold.
const REFUSED: &str = "DynamoDB.ConditionalCheckFailedException";
/// How many seconds a state waits for one response.
pub(crate) const RESPONSE_SECONDS: u64 = 10;
/// The most characters of an error that are kept. A state's data has a limit, and nothing catches what exceeds it.
const MAX_CAUSE: u64 = 2_000;

const LOCK: &str = "Lock";
const LOOK: &str = "Look";
const DECIDE: &str = "Decide";
const TAKE: &str = "Take";
const WAIT: &str = "WaitForHolder";
const INVALID: &str = "InvalidRecord";
const NOT_UNLOCKED: &str = "NotUnlocked";
const FAILED: &str = "Failed";
/// The state that follows a failure under the lock.
pub(crate) const AFTER_FAILURE: &str = "UnlockAfterFailure";
/// The state that follows a step that may still run.
pub(crate) const LEFT: &str = "LeftToItsLease";
/// The state that releases the lock after the work.
pub(crate) const UNLOCK: &str = "Unlock";

const RENEW: &str = "Renew";

/// The states of the lock. No step of the work has such a name, also where a machine needs only some of them.
pub(crate) const NAMES: [&str; 12] =
    [LOCK, LOOK, DECIDE, TAKE, WAIT, INVALID, RENEW, UNLOCK, NOT_UNLOCKED, AFTER_FAILURE, LEFT, FAILED];

/// The states up to the first step.
pub(crate) fn acquire(options: &Options) -> Result<Object, Error> {
    let settings = options.settings()?;
    let requests = Requests::new(options, &settings);
    let lock = requests::lock(options);
    let nothing_seen = Object::new().with("version", "").with("unchanged", 0_u64).with("wait", 0_u64);
    let refused = Object::new()
        .with("ErrorEquals", [REFUSED])
        .with("Assign", Object::new().with("look", nothing_seen))
        .with("Output", input())
        .with("Next", LOOK);
    let taken_by_another = Object::new().with("ErrorEquals", [REFUSED]).with("Output", input()).with("Next", LOOK);
    let goes = |next: &str, state: &str| {
        Object::new().with("Condition", query(&format!("$look.next = '{next}'"))).with("Next", state)
    };
    let cause = format!(
        "'The row of the lock ' & ({}) & ' is not a lock record, or has a number that a state machine cannot keep, \
         or was written with another TTL attribute (ttlAttribute). Look at the row, then repair or delete it, or give all callers \
         the same TTL attribute.'",
        options.key
    );
    Ok(Object::new()
        .with(
            LOCK,
            commented("Acquires a free lock, or one whose holder is dead by the wall clock, with this one state and one request.")
                .with_all(task(options, UPDATE, requests.claim()?))
                .with("Assign", Object::new().with("lock", lock.clone()))
                .with("Retry", retry())
                .with("Catch", [refused])
                .with("Next", options.first_step.as_str()),
        )
        .with(
            LOOK,
            commented("Reads who holds the lock: a refusal does not bring the row.")
                .with_all(task(options, GET, requests.peek()))
                .with("Assign", Object::new().with("look", look::look(options, &settings)))
                .with("Retry", retry())
                .with("Next", DECIDE),
        )
        .with(
            DECIDE,
            Object::new()
                .with("Type", "Choice")
                .with("Choices", [goes(look::CLAIM, LOCK), goes(look::TAKE, TAKE), goes(look::WAIT, WAIT)])
                .with("Default", INVALID),
        )
        .with(
            TAKE,
            commented("Acquires exactly the version that was seen: released, dead, or of this execution after a lost response.")
                .with_all(task(options, UPDATE, requests.take()?))
                .with("Assign", Object::new().with("lock", lock))
                .with("Retry", retry())
                .with("Catch", [taken_by_another])
                .with("Next", options.first_step.as_str()),
        )
        .with(
            WAIT,
            commented("Waits until the holder can be proven dead, but not for long, because it may release earlier.")
                .with("Type", "Wait")
                .with("Seconds", query("$look.wait"))
                .with("Next", LOOK),
        )
        .with(
            INVALID,
            Object::new().with("Type", "Fail").with("Error", "InvalidRecord").with("Cause", query(&cause)),
        ))
}

/// The state between two steps.
pub(crate) fn renew(options: &Options) -> Result<Object, Error> {
    let settings = options.settings()?;
    let row = "$states.result.Attributes";
    let renewed = format!("$merge([$lock, {{'version': {row}.{VERSION}.S, 'leaseEndsAt': $number({row}.{ENDS}.N)}}])");
    let lost = Object::new()
        .with("Error", "LockLost")
        .with("Cause", query("'The lock ' & $lock.key & ' was released, or another execution has it.'"));
    let lost = Object::new()
        .with("ErrorEquals", [REFUSED])
        .with("Assign", Object::new().with("failure", lost))
        .with("Output", input())
        .with("Next", AFTER_FAILURE);
    let state = commented("Starts the lease anew for the next step, or fails as LockLost.")
        .with_all(task(options, UPDATE, Requests::new(options, &settings).renew()?))
        .with("Assign", Object::new().with("lock", query(&renewed)))
        .with("Retry", retry())
        .with("Catch", [lost, caught(["States.ALL"], AFTER_FAILURE)])
        .with("Next", options.second_step.as_str());
    Ok(Object::new().with(RENEW, state))
}

/// The states that release the lock, and the ends of the execution.
pub(crate) fn release(options: &Options) -> Result<Object, Error> {
    let settings = options.settings()?;
    let release = Requests::new(options, &settings).release()?;
    // The clock of this expression may be ahead of the one that the end of the lease was written with.
    let skew = millis_rounded_up(options.max_clock_skew);
    let left = format!("$max([0, $ceil(($lock.leaseEndsAt + {skew} - $millis()) / 1000)])");
    let unlock = |comment: &str, next: &str| {
        let refused = Object::new().with("ErrorEquals", ["States.ALL"]).with("Output", input()).with("Next", next);
        commented(comment)
            .with_all(task(options, UPDATE, release.clone()))
            .with("Retry", retry_for(options.lease))
            .with("Catch", [refused])
    };
    Ok(Object::new()
        .with(
            UNLOCK,
            unlock(
                "Releases the lock. Safe to repeat. The retries last as long as the lease, after which the lock is free in any case.",
                NOT_UNLOCKED,
            )
            .with("End", true),
        )
        .with(
            NOT_UNLOCKED,
            commented("The work is done. Another execution has the lock, or its lease is over.").with("Type", "Succeed"),
        )
        .with(
            AFTER_FAILURE,
            unlock(
                "After an error that ended the step: releases the lock, then fails. A lock that another execution has by then is left alone.",
                FAILED,
            )
            .with("Next", FAILED),
        )
        .with(
            LEFT,
            commented(&format!(
                "The step may still run. So nobody else gets the lock before its lease ends, also not from lock-cleaner: the execution ends only then, and {skew} ms later, because clocks differ.",
            ))
            .with("Type", "Wait")
            .with("Seconds", query(&left))
            .with("Next", FAILED),
        )
        .with(
            FAILED,
            Object::new()
                .with("Type", "Fail")
                .with("Error", query("$failure.Error"))
                .with("Cause", query("$failure.Cause")),
        ))
}

/// Catches these errors under the lock.
pub(crate) fn caught<const N: usize>(errors: [&str; N], next: &str) -> Object {
    Object::new().with("ErrorEquals", errors).with("Assign", failure()).with("Output", input()).with("Next", next)
}

/// Keeps the error for the state that fails.
fn failure() -> Object {
    let cause =
        format!("$exists($states.errorOutput.Cause) ? $substring($states.errorOutput.Cause, 0, {MAX_CAUSE}) : ''");
    let failure = Object::new().with("Error", query("$states.errorOutput.Error")).with("Cause", query(&cause));
    Object::new().with("failure", failure)
}

/// Names what wrote the states, so that they can be written again when the protocol has changed.
pub(crate) fn provenance(command: &str) -> String {
    format!(
        "The lock is that of lambda-lock {}, protocol {}. Do not edit its states. Write them again with: {command}",
        env!("CARGO_PKG_VERSION"),
        OURS.trim_end_matches('-')
    )
}

/// The input of a state is its output.
pub(crate) fn input() -> String {
    query("$states.input")
}

fn commented(comment: &str) -> Object {
    Object::new().with("Comment", comment)
}

fn task(options: &Options, operation: &str, arguments: Object) -> Object {
    Object::new()
        .with("Type", "Task")
        .with("Resource", format!("arn:{}:states:::dynamodb:{operation}", options.partition))
        .with("Arguments", arguments)
        .with("Output", input())
        .with("TimeoutSeconds", RESPONSE_SECONDS)
}

/// Retries what may have gone wrong on the way.
fn retry() -> Json {
    let again = again()
        .with("IntervalSeconds", 1_u64)
        .with("BackoffRate", 2_u64)
        .with("MaxDelaySeconds", 10_u64)
        .with("MaxAttempts", 6_u64)
        .with("JitterStrategy", "FULL");
    [never(), again].into()
}

/// Retries for as long as the lease lasts, after which the lock is free in any case.
fn retry_for(lease: Duration) -> Json {
    let (lease, longest) = (lease.as_secs() + 1, (lease.as_secs() / 20).max(20));
    let (mut pauses, mut pause, mut attempts) = (0, 2, 0_u64);
    while pauses < lease {
        pauses += pause;
        pause = (pause * 2).min(longest);
        attempts += 1;
    }
    let again = again()
        .with("IntervalSeconds", 2_u64)
        .with("BackoffRate", 2_u64)
        .with("MaxDelaySeconds", longest)
        .with("MaxAttempts", attempts);
    [never(), again].into()
}

/// A refusal is an answer, and an expression fails again in the same way.
fn never() -> Object {
    Object::new().with("ErrorEquals", [REFUSED, "States.QueryEvaluationError"]).with("MaxAttempts", 0_u64)
}

fn again() -> Object {
    Object::new().with("ErrorEquals", ["States.ALL"])
}
