"""Which events invoke lock-cleaner, and which changes of the lock table lock-waker? python deploy/template/rules.py TEMPLATE

Holds events as AWS documents them (functions/lock-cleaner/tests/events), with each status and of several state machines,
against the rules of the expanded template, for the values of the parameters that decide about them. Holds changes of rows in
a record of a stream (functions/lock-waker/tests/events) against the filter of the stream.
"""

import json
import pathlib
import sys

from expansion import ACCOUNT, REGION, Expansion

EVENTS = pathlib.Path("functions/lock-cleaner/tests/events")
STATUSES = ["RUNNING", "SUCCEEDED", "PENDING_REDRIVE", "FAILED", "TIMED_OUT", "ABORTED", "STOPPED"]
# After which statuses lock-cleaner runs.
ENDED = {"FAILED", "TIMED_OUT", "ABORTED"}
DURABLE_ENDED = {"FAILED", "TIMED_OUT", "STOPPED"}
MACHINES = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:"
SAMPLES = ["ExclusiveWork", "SkipIfRunning", "FanOut", "AtMostN"]
ORDERS, BILLING, SAMPLE, WITHOUT = "orders-nightly", "billing", "ExclusiveWork", "ExclusiveWorkWithoutLockTask"
# A copy of a sample (docs/step-functions.md#copy-a-state-machine). Nobody cleans up after it unless a parameter names it.
COPY = f"{SAMPLE}Copy"
# The child executions of a distributed Map have state machines of such names.
CHILD = f"{ORDERS}/EachItem"
CHANGE = pathlib.Path("functions/lock-waker/tests/events/stream.json")
# A change of the row in that record, and whether it invokes lock-waker. None is no attribute.
CHANGES = [
    ("a release", {}, True),
    ("a grant", {"isReleased": None}, False),
    ("a release for which nobody has ever slept", {"lastSleeper": None}, False),
    ("a release for which nobody has ever waited", {"lastSleeper": None, "lastTicket": None, "servedTicket": None}, False),
    ("a frozen lock, which the function looks at itself,", {"freezeReason": {"S": "a deployment"}}, True),
    ("a wake item", {"isReleased": None, "lastSleeper": None, "taskToken": {"S": "token"}}, False),
    ("a deleted row", None, False),
]
# How often and for how many seconds EventBridge tries to deliver. A tick is of no use when the next one is near.
RETRIES = {
    "ExecutionEnded": {"MaximumRetryAttempts": 10, "MaximumEventAgeInSeconds": 3600},
    "DurableExecutionEnded": {"MaximumRetryAttempts": 10, "MaximumEventAgeInSeconds": 3600},
    "ScheduledJobTick": {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 600},
}
# Parameters, and after the end of which state machines lock-cleaner runs. None is a durable execution.
CASES = [
    ({}, SAMPLES),
    ({"CleansExecutionsOf": f"{MACHINES}{COPY}"}, [*SAMPLES, COPY]),
    ({"Samples": "false", "CleansExecutionsOf": f"{MACHINES}{COPY}"}, [COPY]),
    ({"CleansExecutionsOf": f"{MACHINES}{ORDERS},{MACHINES}{CHILD}"}, [*SAMPLES, ORDERS, CHILD]),
    ({"Samples": "false", "CleansExecutionsOfPrefix": f"{MACHINES}{ORDERS}/"}, [CHILD]),
    ({"SampleWithoutLockTask": "true"}, [*SAMPLES, WITHOUT]),
    ({"CleansExecutionsOfPrefix": f"{MACHINES}orders-"}, [*SAMPLES, ORDERS, CHILD]),
    ({"CleansExecutionsOfPrefix": MACHINES}, [*SAMPLES, WITHOUT, COPY, ORDERS, CHILD, BILLING]),
    ({"CleansExecutionsOf": f"{MACHINES}{ORDERS},{MACHINES}{SAMPLE}"}, [*SAMPLES, ORDERS]),
    ({"Samples": "false", "CleansExecutionsOf": f"{MACHINES}{ORDERS},{MACHINES}{BILLING}"}, [ORDERS, BILLING]),
    ({"Samples": "false", "CleansExecutionsOf": f"{MACHINES}{BILLING}", "CleansExecutionsOfPrefix": f"{MACHINES}ord"}, [BILLING, ORDERS, CHILD]),
    ({"Samples": "false"}, []),
    ({"Samples": "false", "CleansExecutionsOf": f"{MACHINES}{ORDERS}"}, [ORDERS]),
    ({"Samples": "false", "CleansDurableExecutions": "true"}, [None]),
    ({"CleansDurableExecutions": "true"}, [*SAMPLES, None]),
]


def matches(pattern, event):
    """Whether EventBridge would match the event. A pattern lists the values of each field, or their beginnings."""
    if isinstance(pattern, dict):
        return isinstance(event, dict) and all(
            any(matches(one, event) for one in wanted) if name == "$or" else matches(wanted, event.get(name))
            for name, wanted in pattern.items()
        )

    def is_it(value):
        if isinstance(value, dict):
            if value == {"exists": True}:
                return event is not None
            assert set(value) == {"prefix"}, value
            return isinstance(event, str) and event.startswith(value["prefix"])
        return value == event

    return any(is_it(value) for value in pattern if value is not None)


def events(machine):
    kind = "durable-execution" if machine is None else "state-machine"
    for status in STATUSES:
        event = json.loads((EVENTS / f"{kind}.json").read_text())
        event["detail"]["status"] = status
        if machine is not None:
            event["detail"]["stateMachineArn"] = MACHINES + machine
        yield status, event


def findings(expansion, cleaned):
    rules = {name: one for name, one in expansion.of_type("AWS::Events::Rule").items() if "EventPattern" in one}
    patterns = [expansion.resolve(rule["EventPattern"]) for rule in rules.values()]
    for name, rule in rules.items():
        (target,) = rule["Targets"]
        if target["Arn"] != {"Fn::GetAtt": ["LockCleaner", "Arn"]}:
            yield f"{name} has another target than lock-cleaner"
        if target["DeadLetterConfig"]["Arn"] != {"Fn::GetAtt": ["CleanupDeadLetters", "Arn"]}:
            yield f"{name} loses events that it cannot deliver"
    for machine in [*SAMPLES, WITHOUT, COPY, ORDERS, CHILD, BILLING, None]:
        after = (DURABLE_ENDED if machine is None else ENDED) if machine in cleaned else set()
        for status, event in events(machine):
            times = sum(matches(pattern, event) for pattern in patterns)
            if times != (status in after):
                yield f"{machine or 'a durable execution'} with the status {status} invokes lock-cleaner {times} times"
    # Each rule may invoke the function, and no other.
    allowed = [
        one["SourceArn"]["Fn::GetAtt"][0]
        for one in expansion.of_type("AWS::Lambda::Permission").values()
        if one["FunctionName"] == {"Ref": "LockCleaner"}
    ]
    if sorted(allowed) != sorted(rules):
        yield f"lock-cleaner may be invoked by {sorted(allowed)}, and the rules are {sorted(rules)}"
    yield from queue_findings(expansion)


def queue_findings(expansion):
    """Exactly the rules that lose nothing to a queue may send to it, and nobody comes without TLS. EventBridge tries again as
    often and for as long as RETRIES says."""
    rules = expansion.of_type("AWS::Events::Rule")
    senders = {}
    for name, rule in rules.items():
        for target in rule["Targets"]:
            if "DeadLetterConfig" not in target:
                yield f"{name} loses events that it cannot deliver"
                continue
            if target["RetryPolicy"] != RETRIES[name]:
                yield f"{name} is tried again as {target['RetryPolicy']}, expected {RETRIES[name]}"
            senders.setdefault(target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0], []).append(arn_of(name))
    policies = {
        policy["Queues"][0]["Ref"]: policy["PolicyDocument"]["Statement"]
        for policy in expansion.of_type("AWS::SQS::QueuePolicy").values()
    }
    for queue in expansion.of_type("AWS::SQS::Queue"):
        expected = []
        if queue in senders:
            expected.append({
                "Effect": "Allow",
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": arn_of(queue),
                "Condition": {"ArnEquals": {"aws:SourceArn": senders[queue]}},
            })
        expected.append({
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": arn_of(queue),
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        })
        if policies.get(queue) != expected:
            yield f"the policy of {queue} is {policies.get(queue)}, expected {expected}"


def of_change(change):
    """The record of this change of the image that functions/lock-waker/tests/events has. None: the row was deleted."""
    (record,) = json.loads(CHANGE.read_text())["Records"]
    image = record["dynamodb"].pop("NewImage")
    if change is not None:
        changed = {name: value for name, value in (image | change).items() if value is not None}
        record["dynamodb"]["NewImage"] = changed
    return record


def change_findings(expansion):
    """Exactly the changes that CHANGES says invoke lock-waker, with the table's own stream."""
    (mapping,) = expansion.mappings()[1]
    (one,) = mapping["FilterCriteria"]["Filters"]
    pattern = json.loads(one["Pattern"])
    for says, change, invokes in CHANGES:
        if matches(pattern, of_change(change)) != invokes:
            yield f"{says} {'does not invoke' if invokes else 'invokes'} lock-waker"
    if mapping["EventSourceArn"] != {"Fn::GetAtt": ["LockTable", "StreamArn"]}:
        yield f"lock-waker reads {mapping['EventSourceArn']}"
    # Old changes wake nobody who still sleeps for them, and a batch that fails must not hold up the later ones.
    for setting, expected in {
        "StartingPosition": "LATEST", "MaximumBatchingWindowInSeconds": 0, "MaximumRetryAttempts": 2,
        "MaximumRecordAgeInSeconds": 300,
    }.items():
        if mapping.get(setting) != expected:
            yield f"the {setting} of lock-waker is {mapping.get(setting)}, expected {expected}"
    if expansion.resources["LockTable"]["Properties"].get("StreamSpecification") != {"StreamViewType": "NEW_AND_OLD_IMAGES"}:
        yield "the stream of the lock table does not have the images that lock-waker and `lambda-lock history` need"


def arn_of(name):
    return {"Fn::GetAtt": [name, "Arn"]}


def main(path):
    found = [
        f"{parameters}: {finding}"
        for parameters, cleaned in CASES
        for finding in findings(Expansion(path, **parameters), cleaned)
    ]
    found += change_findings(Expansion(path, WakeByStream="true"))
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    for parameters, cleaned in CASES:
        print(f"{parameters}: {', '.join(machine or 'durable executions' for machine in cleaned) or 'none'}")
    print(f"lock-waker: {', '.join(says for says, _, invokes in CHANGES if invokes)}")


if __name__ == "__main__":
    main(sys.argv[1])
