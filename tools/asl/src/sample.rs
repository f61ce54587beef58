//! A whole state machine: `exclusive-work` of the stack, with the lock on DynamoDB alone.

use crate::MAY_STILL_RUN;
use crate::json::Object;
use crate::jsonata::query;
use crate::options::{Error, Options};
use crate::states::{self, AFTER_FAILURE, LEFT, UNLOCK, caught, input};

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
        .with_all(step(options, &options.first_step, "read", None, "Renew"))
        .with_all(states::renew(options)?)
        .with_all(step(options, &options.second_step, "write", Some(value), UNLOCK))
        .with_all(states::release(options)?);
    Ok(Object::new()
        .with("Comment", comment)
        .with("QueryLanguage", "JSONata")
        .with("StartAt", "Lock")
        .with("TimeoutSeconds", 3600_u64)
        .with("States", states))
}

/// A step of `sample-work`.
fn step(options: &Options, name: &str, step: &str, value: Option<&str>, next: &str) -> Object {
    // Larger arguments than a state may have are an error that nothing catches.
    let execution_input = "$length($string($states.context.Execution.Input)) > 60000 ? \
         $error('the input is longer than 60,000 characters: put it elsewhere, such as in S3, and give its name') : \
         $states.context.Execution.Input";
    let payload = Object::new()
        .with("step", step)
        .with("counter", query("$lock.key"))
        .with("fencingToken", query("$lock.fencingToken"))
        .with("writer", query("$states.context.Execution.Id"))
        .with("input", query(execution_input));
    let payload = match value {
        Some(value) => payload.with("value", query(value)),
        None => payload,
    };
    // The only error that says that the function has not begun.
    let retry = Object::new()
        .with("ErrorEquals", ["Lambda.TooManyRequestsException"])
        .with("IntervalSeconds", 2_u64)
        .with("BackoffRate", 2_u64)
        .with("MaxDelaySeconds", 10_u64)
        .with("MaxAttempts", 3_u64)
        .with("JitterStrategy", "FULL");
    let state = Object::new()
        .with(
            "Comment",
            "Your work. Write the fencing token with everything that it writes. It must end before the lease does.",
        )
        .with("Type", "Task")
        .with("Resource", format!("arn:{}:states:::lambda:invoke", options.partition))
        .with("Arguments", Object::new().with("FunctionName", "${WorkArn}").with("Payload", payload))
        .with("Assign", Object::new().with("value", query("$number($states.result.Payload.value)")))
        .with("Output", input())
        .with("TimeoutSeconds", STEP_SECONDS)
        .with("Retry", [retry])
        .with(
            "Catch",
            [
                caught(MAY_STILL_RUN, LEFT),
                // States.ALL does not match it.
                caught(["States.DataLimitExceeded"], AFTER_FAILURE),
                caught(["States.ALL"], AFTER_FAILURE),
            ],
        )
        .with("Next", next);
    Object::new().with(name, state)
}
