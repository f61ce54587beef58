//! A whole state machine: `exclusive-work` of the stack, with the lock on DynamoDB alone.

use crate::json::Object;
use crate::jsonata::query;
use crate::options::{Error, Options};
use crate::states::{self, UNLOCK, any_failure, input};

/// How many seconds a step may take. More than the timeout of `sample-work`.
const STEP_SECONDS: u64 = 35;

/// Two steps of work, each done by the function `${WorkArn}`.
pub(crate) fn machine(options: &Options, command: &str) -> Result<Object, Error> {
    let comment = format!(
        "Two steps of work on a key, done by one execution at a time, without the function lock-task. \
         Input: {{\"key\": \"customer-7\"}}. {}",
        states::provenance(command)
    );
    let value = "$value + 1";
    let states = states::acquire(options)?
        .with_all(step(&options.first_step, "read", None, "Renew"))
        .with_all(states::renew(options)?)
        .with_all(step(&options.second_step, "write", Some(value), UNLOCK))
        .with_all(states::release(options)?);
    Ok(Object::new()
        .with("Comment", comment)
        .with("QueryLanguage", "JSONata")
        .with("StartAt", "Lock")
        .with("TimeoutSeconds", 3600_u64)
        .with("States", states))
}

/// A step of `sample-work`.
fn step(name: &str, step: &str, value: Option<&str>, next: &str) -> Object {
    let payload = Object::new()
        .with("step", step)
        .with("counter", query("$lock.key"))
        .with("fencingToken", query("$lock.fencingToken"))
        .with("writer", query("$states.context.Execution.Id"))
        .with("input", query("$states.context.Execution.Input"));
    let payload = match value {
        Some(value) => payload.with("value", query(value)),
        None => payload,
    };
    // Only what Lambda did not start: whether the work may run twice, its owner decides.
    let not_started = [
        "Lambda.ServiceException",
        "Lambda.AWSLambdaException",
        "Lambda.SdkClientException",
        "Lambda.TooManyRequestsException",
    ];
    let retry = Object::new()
        .with("ErrorEquals", not_started)
        .with("IntervalSeconds", 1_u64)
        .with("BackoffRate", 2_u64)
        .with("MaxDelaySeconds", 10_u64)
        .with("MaxAttempts", 6_u64)
        .with("JitterStrategy", "FULL");
    let state = Object::new()
        .with(
            "Comment",
            "Your work. Write the fencing token with everything that it writes. It must end before the lease does.",
        )
        .with("Type", "Task")
        .with("Resource", "arn:aws:states:::lambda:invoke")
        .with("Arguments", Object::new().with("FunctionName", "${WorkArn}").with("Payload", payload))
        .with("Assign", Object::new().with("value", query("$states.result.Payload.value")))
        .with("Output", input())
        .with("TimeoutSeconds", STEP_SECONDS)
        .with("Retry", [retry])
        .with("Catch", [any_failure()])
        .with("Next", next);
    Object::new().with(name, state)
}
