//! The states that acquire, renew and release one lock.
//!
//! ```text
//! Lock ──► first step ──► Renew ──► second step ──► Unlock
//!  │ refused        any failure ──► UnlockAfterFailure ──► Failed
//!  ▼
//! Look ──► Decide ─┬ no row, or released by one of us ..... Lock
//!                  ├ other releases, dead, or our own ..... Take ──► first step
//!                  ├ held ................................. WaitForHolder ──► Look
//!                  └ no lock record ....................... InvalidRecord
//! ```

use crate::json::{Json, Object};
use crate::jsonata::query;
use crate::look;
use crate::options::{Error, Options, Poll};
use crate::requests::{self, Requests};
use lambda_lock::protocol::OURS;
use lambda_lock::protocol::schema::{ENDS, VERSION};

const UPDATE: &str = "arn:aws:states:::dynamodb:updateItem";
const GET: &str = "arn:aws:states:::dynamodb:getItem";
/// The condition of a write did not hold.
const REFUSED: &str = "DynamoDB.ConditionalCheckFailedException";
/// How many seconds a state waits for one response.
const RESPONSE_SECONDS: u64 = 10;
/// The longest pause between two attempts, in seconds.
const LONGEST_RETRY_SECONDS: u64 = 10;
const ATTEMPTS: u64 = 6;

const LOCK: &str = "Lock";
const LOOK: &str = "Look";
const DECIDE: &str = "Decide";
const TAKE: &str = "Take";
const WAIT: &str = "WaitForHolder";
const INVALID: &str = "InvalidRecord";
const LEFT: &str = "LeftToItsLease";
const FAILED: &str = "Failed";
/// The state that follows a failure under the lock.
pub(crate) const AFTER_FAILURE: &str = "UnlockAfterFailure";
/// The state that releases the lock after the work.
pub(crate) const UNLOCK: &str = "Unlock";

/// The states up to the first step.
pub(crate) fn acquire(options: &Options) -> Result<Object, Error> {
    let settings = options.settings()?;
    let requests = Requests::new(options, &settings);
    let lock = requests::lock(options);
    let polls_by_claim = options.poll == Poll::Claim;
    let nothing_seen = Object::new()
        .with("version", "")
        .with("unchanged", 0_u64)
        .with("wait", if polls_by_claim { options.poll_seconds } else { 0_u64 });
    let not_granted = |error: &str, next: &str| {
        Object::new()
            .with("ErrorEquals", [error])
            .with("Assign", Object::new().with("look", nothing_seen.clone()))
            .with("Output", input())
            .with("Next", next)
    };
    let claim = task(UPDATE, requests.claim()?).with("Assign", Object::new().with("lock", lock.clone()));
    let claim = match options.poll {
        Poll::Look => claim.with("Retry", retry(ATTEMPTS)).with("Catch", [not_granted(REFUSED, LOOK)]),
        // What was refused waits. What had no response looks, because it may have been granted.
        Poll::Claim => claim.with("Catch", [not_granted(REFUSED, WAIT), not_granted("States.ALL", LOOK)]),
    };
    let taken_by_another = Object::new().with("ErrorEquals", [REFUSED]).with("Output", input()).with("Next", LOOK);
    let is = |next: &str| query(&format!("$look.next = '{next}'"));
    let goes = |next: &str, state: &str| Object::new().with("Condition", is(next)).with("Next", state);
    let cause = format!(
        "'The row of the lock ' & ({}) & ' is not a lock record, or has a number that a state machine cannot keep. \
         Look at the row, then repair or delete it.'",
        options.key
    );
    Ok(Object::new()
        .with(
            LOCK,
            commented(
                "Acquires a free lock, or one whose holder is dead by the wall clock, with this one state and one request.",
            )
            .with_all(claim)
            .with("Next", options.first_step.as_str()),
        )
        .with(
            LOOK,
            commented("Reads who holds the lock: a refusal does not bring the row.")
                .with_all(task(GET, requests.peek()))
                .with("Assign", Object::new().with("look", look::look(options, &settings)))
                .with("Retry", retry(ATTEMPTS))
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
                .with_all(task(UPDATE, requests.take()?))
                .with("Assign", Object::new().with("lock", lock))
                .with("Retry", retry(ATTEMPTS))
                .with("Catch", [taken_by_another])
                .with("Next", options.first_step.as_str()),
        )
        .with(
            WAIT,
            commented("Waits until the holder can be proven dead, but not for long, because it may release earlier.")
                .with("Type", "Wait")
                .with("Seconds", query("$look.wait"))
                .with("Next", if polls_by_claim { LOCK } else { LOOK }),
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
        .with_all(task(UPDATE, Requests::new(options, &settings).renew()?))
        .with("Assign", Object::new().with("lock", query(&renewed)))
        .with("Retry", retry(ATTEMPTS))
        .with("Catch", [lost, any_failure()])
        .with("Next", options.second_step.as_str());
    Ok(Object::new().with("Renew", state))
}

/// The states that release the lock, and the ends of the execution.
pub(crate) fn release(options: &Options) -> Result<Object, Error> {
    let settings = options.settings()?;
    let release = Requests::new(options, &settings).release()?;
    // Until the lease is over anyway.
    let attempts = (options.lease.as_secs() / LONGEST_RETRY_SECONDS).clamp(ATTEMPTS, 60);
    let unlock = |comment: &str, next: &str| {
        let refused = Object::new().with("ErrorEquals", ["States.ALL"]).with("Output", input()).with("Next", next);
        commented(comment)
            .with_all(task(UPDATE, release.clone()))
            .with("Retry", retry(attempts))
            .with("Catch", [refused])
    };
    let error = |part: &str| query(&format!("$exists($failure.{part}) ? $failure.{part} : ''"));
    Ok(Object::new()
        .with(
            UNLOCK,
            unlock("Releases the lock. Safe to repeat. If it fails, another execution has the lock, or its lease frees it.", LEFT)
                .with("End", true),
        )
        .with(LEFT, Object::new().with("Type", "Succeed"))
        .with(
            AFTER_FAILURE,
            unlock("Releases the lock after any failure. A lock that another execution has by then is left alone.", FAILED)
                .with("Next", FAILED),
        )
        .with(
            FAILED,
            Object::new().with("Type", "Fail").with("Error", error("Error")).with("Cause", error("Cause")),
        ))
}

/// Catches what went wrong under the lock.
pub(crate) fn any_failure() -> Object {
    Object::new()
        .with("ErrorEquals", ["States.ALL"])
        .with("Assign", Object::new().with("failure", query("$states.errorOutput")))
        .with("Output", input())
        .with("Next", AFTER_FAILURE)
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

fn task(resource: &str, arguments: Object) -> Object {
    Object::new()
        .with("Type", "Task")
        .with("Resource", resource)
        .with("Arguments", arguments)
        .with("Output", input())
        .with("TimeoutSeconds", RESPONSE_SECONDS)
}

/// Retries what may have gone wrong on the way. A refusal is an answer, and an expression fails again in the same way.
fn retry(attempts: u64) -> Json {
    let never = Object::new().with("ErrorEquals", [REFUSED, "States.QueryEvaluationError"]).with("MaxAttempts", 0_u64);
    let again = Object::new()
        .with("ErrorEquals", ["States.ALL"])
        .with("IntervalSeconds", 1_u64)
        .with("BackoffRate", 2_u64)
        .with("MaxDelaySeconds", LONGEST_RETRY_SECONDS)
        .with("MaxAttempts", attempts)
        .with("JitterStrategy", "FULL");
    [never, again].into()
}
