"""Does what belongs together meet? python deploy/template/wiring.py TEMPLATE

Each function logs into its own group, what is invoked asynchronously, by a queue or by a stream has the limits below, and
outputs are what their names say.
"""

import re
import sys

from samtranslator.yaml_helper import yaml_parse

from expansion import Expansion

# What is invoked asynchronously: how often Lambda tries again, for how long, and where what failed goes.
ASYNCHRONOUS = {"LockCleaner": (2, 3600, "CleanupDeadLetters"), "ScheduledJob": (2, 600, "JobDeadLetters")}
# How many batches of a queue are under way at once.
AT_ONCE = {"OrderQueue": 10}
# What is invoked by a stream: how many changes at once, which of them, and for how long they are tried. None of them is kept
# for later, because a wake-up that comes after minutes is of no use.
BY_STREAM = {"LockWaker": {
    "StartingPosition": "LATEST", "BatchSize": 100, "MaximumBatchingWindowInSeconds": 0, "BisectBatchOnFunctionError": True,
    "MaximumRetryAttempts": 2, "MaximumRecordAgeInSeconds": 300,
}}
# How long messages wait for somebody to look at them, as docs/operations.md says, in seconds.
DEAD_LETTERS_ARE_KEPT = 14 * 24 * 3600
# A message is not delivered again before so many times the timeout of its function, as AWS recommends.
TIMEOUTS_UNTIL_REDELIVERY = 6


def output_of(name):
    """What the output of this name is: its ending says which attribute, and the rest says of which resource."""
    resource, kind = re.fullmatch(r"(\w+?)(Name|Arn|Url|LogGroup)", name).groups()
    return {"Ref": f"{resource}Logs" if kind == "LogGroup" else resource}, {"Fn::GetAtt": [resource, "Arn"]}, kind == "Arn"


def outputs(path):
    """Each output is what its name says, and each of the lock itself is exported under its name."""
    with open(path, encoding="utf-8") as file:
        source = yaml_parse(file.read())["Outputs"]
    expansion = Expansion(path)
    machines = expansion.of_type("AWS::StepFunctions::StateMachine").keys() | {"ExclusiveWorkWithoutLockTask"}
    for name, output in expansion.decided(source).items():
        reference, arn, is_arn = output_of(name)
        # The reference of a state machine is its ARN.
        expected = arn if is_arn and reference["Ref"] not in machines else reference
        found = output["Value"]
        if isinstance(found.get("Fn::GetAtt"), str):
            found = {"Fn::GetAtt": found["Fn::GetAtt"].split(".")}
        if found != expected:
            yield f"the output {name} is {found}, expected {expected}"
        exported = None if "Condition" in output else {"Name": {"Fn::Sub": f"${{AWS::StackName}}-{name}"}}
        if output.get("Export") != exported:
            yield f"the output {name} is exported as {output.get('Export')}, expected {exported}"


def findings(path):
    expansion = Expansion(path, WakeByStream="true")
    from_queues, from_streams = expansion.mappings()
    for name, function in expansion.of_type("AWS::Lambda::Function").items():
        if function.get("LoggingConfig", {}).get("LogGroup") != {"Ref": f"{name}Logs"}:
            yield f"{name} logs into {function.get('LoggingConfig')}"
    found = {
        one["FunctionName"]["Ref"]: (
            one["MaximumRetryAttempts"],
            one["MaximumEventAgeInSeconds"],
            one["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0],
        )
        for one in expansion.of_type("AWS::Lambda::EventInvokeConfig").values()
    }
    if found != ASYNCHRONOUS:
        yield f"asynchronous invocations have {found}, expected {ASYNCHRONOUS}"
    found = {
        one["FunctionName"]["Ref"]: one.get("ScalingConfig", {}).get("MaximumConcurrency") for one in from_queues
    }
    if found != AT_ONCE:
        yield f"batches of queues at once: {found}, expected {AT_ONCE}"
    # Which changes these are and of which table, other checks look at.
    found = {
        one["FunctionName"]["Ref"]: {
            name: one[name] for name in one if name not in ("FunctionName", "EventSourceArn", "FilterCriteria")
        }
        for one in from_streams
    }
    if found != BY_STREAM:
        yield f"changes in streams are delivered as {found}, expected {BY_STREAM}"
    queues = expansion.of_type("AWS::SQS::Queue")
    for name, queue in queues.items():
        if name.endswith("DeadLetters") and queue["MessageRetentionPeriod"] != DEAD_LETTERS_ARE_KEPT:
            yield f"{name} keeps messages for {queue['MessageRetentionPeriod']} s, expected {DEAD_LETTERS_ARE_KEPT}"
    for one in from_queues:
        name, function = one["EventSourceArn"]["Fn::GetAtt"][0], one["FunctionName"]["Ref"]
        least = TIMEOUTS_UNTIL_REDELIVERY * expansion.of_type("AWS::Lambda::Function")[function]["Timeout"]
        if queues[name]["VisibilityTimeout"] < least:
            yield f"{name} delivers again after {queues[name]['VisibilityTimeout']} s, expected at least {least}"
    yield from outputs(path)


def main(path):
    found = list(findings(path))
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print("what belongs together meets")


if __name__ == "__main__":
    main(sys.argv[1])
