"""What may the functions do? python deploy/template/roles.py TEMPLATE

Holds every role of the expanded template against the list below: these actions, on these resources,
and nothing else, without and with a prefix for the keys of lock-task. A role that is not listed fails, as does a function that runs another program than the one
of its own name: beside order-queue there is one that writes without fences, for a test to compare with.
"""

import re
import sys

from expansion import Expansion, grants

TABLE = {"Fn::GetAtt": ["LockTable", "Arn"]}
LOCK = [("dynamodb:GetItem", TABLE), ("dynamodb:UpdateItem", TABLE)]
INDEX = {"Fn::Sub": "${LockTable.Arn}/index/byWorkflow"}
# Lambda itself sends what failed, in the function's name.
DEAD_LETTERS = ("sqs:SendMessage", {"Fn::GetAtt": ["CleanupDeadLetters", "Arn"]})
# A state machine does what it does through functions.
INVOKE = [("lambda:InvokeFunction", {"Fn::GetAtt": [name, "Arn"]}) for name in ("LockTask", "SampleWork")]
ORDER = [*LOCK, ("dynamodb:UpdateItem", {"Fn::GetAtt": ["OrdersTable", "Arn"]})]
# What Lambda does on the queue in the function's name.
POLL = [
    (f"sqs:{action}", {"Fn::GetAtt": ["OrderMessages", "Arn"]})
    for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
]

# Role: its actions and resources, apart from writing its own logs.
EXPECTED = {
    "ChargeOrderRole": ORDER,
    "ExclusiveWorkRole": INVOKE,
    "FanOutRole": INVOKE,
    "LockCleanerRole": [*LOCK, ("dynamodb:Query", INDEX), DEAD_LETTERS],
    "LockTaskRole": LOCK,
    "OrderQueueRole": [*ORDER, *POLL],
    "SampleWorkRole": [("dynamodb:UpdateItem", {"Fn::GetAtt": ["WorkTable", "Arn"]})],
    "ScheduledJobRole": LOCK,
    "SkipIfRunningRole": INVOKE,
}
LOGS = "service-role/AWSLambdaBasicExecutionRole"


# Roles that may only use keys with the prefix, where there is one.
CONFINED = ["LockTaskRole"]
PREFIX = "orders/"
KEYS = {
    "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{PREFIX}*"]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}


def findings(expansion):
    is_confined = expansion.parameters["LockKeyPrefix"] == PREFIX
    roles = expansion.of_type("AWS::IAM::Role")
    for name in sorted(set(EXPECTED) ^ set(roles)):
        yield f"{name} is {'expected and missing' if name in EXPECTED else 'not expected'}"
    for name in sorted(set(EXPECTED) & set(roles)):
        role = roles[name]
        for arn in role.get("ManagedPolicyArns", []):
            if not str(arn).rstrip("'}").endswith(LOGS):
                yield f"{name} has the managed policy {arn}"
        found = [(action, resource) for action, resource, _ in grants(role)]
        condition = KEYS if is_confined and name in CONFINED else None
        for action, resource, other in grants(role):
            if expansion.resolve(other) != condition:
                yield f"{name} may do {action} under the condition {expansion.resolve(other)}, expected {condition}"
            if "*" in action:
                yield f"{name} may do {action}"
            if resource == "*" or "*" in str(resource):
                yield f"{name} may do {action} on {resource}"
        if sorted(found, key=str) != sorted(EXPECTED[name], key=str):
            yield f"{name} may do {found}, expected {EXPECTED[name]}"
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name in expansion.of_type(kind):
            yield f"{name} is a policy beside the roles"
    for name, function in expansion.of_type("AWS::Lambda::Function").items():
        if expansion.binaries.get(name) != own_name(name):
            yield f"{name} runs {expansion.binaries.get(name)}, expected {own_name(name)}"
        if function["Role"] != {"Fn::GetAtt": [f"{name}Role", "Arn"]}:
            yield f"{name} has no role of its own: {function['Role']}"


def own_name(function):
    """What the program of a function is called: LockTask runs lock-task."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", function).lower()


def main(path):
    found = [*findings(Expansion(path)), *findings(Expansion(path, LockKeyPrefix=PREFIX))]
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    for name, granted in sorted(EXPECTED.items()):
        print(f"{name}: {', '.join(action for action, _ in granted)}")


if __name__ == "__main__":
    main(sys.argv[1])
