"""Which events invoke lock-cleaner? python deploy/template/rules.py TEMPLATE

Holds events as AWS documents them (functions/lock-cleaner/tests/events), with each status, against the rules of the
expanded template: with the parameter CleansDurableExecutions and without it.
"""

import json
import pathlib
import sys

from expansion import Expansion

EVENTS = pathlib.Path("functions/lock-cleaner/tests/events")
STATUSES = ["RUNNING", "SUCCEEDED", "PENDING_REDRIVE", "FAILED", "TIMED_OUT", "ABORTED", "STOPPED"]
# After which statuses lock-cleaner runs.
EXPECTED = {
    "state-machine": {"FAILED", "TIMED_OUT", "ABORTED"},
    "durable-execution": {"FAILED", "TIMED_OUT", "STOPPED"},
}


def matches(pattern, event):
    """Whether EventBridge would match the event. A pattern lists the values of each field; it has no other filters."""
    if isinstance(pattern, dict):
        return isinstance(event, dict) and all(matches(one, event.get(name)) for name, one in pattern.items())
    assert all(isinstance(value, str) for value in pattern), pattern
    return event in pattern


def findings(expansion, expected):
    rules = {name: one for name, one in expansion.of_type("AWS::Events::Rule").items() if "EventPattern" in one}
    targets = [target for rule in rules.values() for target in rule["Targets"]]
    if any(target["Arn"] != {"Fn::GetAtt": ["LockCleaner", "Arn"]} for target in targets):
        yield "a rule with a pattern has another target than lock-cleaner"
    enabled = [rule["EventPattern"] for rule in rules.values() if rule.get("State", "ENABLED") == "ENABLED"]
    for kind, after in expected.items():
        event = json.loads((EVENTS / f"{kind}.json").read_text())
        for status in STATUSES:
            event["detail"]["status"] = status
            times = sum(matches(pattern, event) for pattern in enabled)
            if times != (status in after):
                yield f"the event {kind} with the status {status} invokes lock-cleaner {times} times"
    # Each rule may send what it could not deliver.
    (statement,) = expansion.of_type("AWS::SQS::QueuePolicy")["CleanupDeadLettersPolicy"]["PolicyDocument"]["Statement"]
    senders = statement["Condition"]["ArnEquals"]["aws:SourceArn"]
    if sorted(one["Fn::GetAtt"][0] for one in senders) != sorted(rules):
        yield f"the dead-letter queue takes events of {senders}, and the rules are {sorted(rules)}"


def main(path):
    without = EXPECTED | {"durable-execution": set()}
    found = [
        f"CleansDurableExecutions={value}: {finding}"
        for value, expected in (("false", without), ("true", EXPECTED))
        for finding in findings(Expansion(path, CleansDurableExecutions=value), expected)
    ]
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    for kind, after in EXPECTED.items():
        print(f"{kind}: {', '.join(sorted(after))}")


if __name__ == "__main__":
    main(sys.argv[1])
