"""What may the functions do? python deploy/template/roles.py TEMPLATE

Holds every role of the expanded template against the list below: these actions, on these resources,
and nothing else, with a lock table of the stack's own and with one that exists already, without and with a prefix for
the keys of lock-task, without and with lock-waker. A role that is not listed fails, as does a function that runs another program than the one
of its own name: beside order-queue there is one that writes without fences, for a test to compare with.
The table of actions in docs/settings.md has to be the same list.
"""

import itertools
import pathlib
import re
import sys

from expansion import Expansion, grants

TABLE = {"Fn::GetAtt": ["LockTable", "Arn"]}
LOCK = [("dynamodb:GetItem", TABLE), ("dynamodb:UpdateItem", TABLE)]
INDEX = {"Fn::Sub": "${LockTable.Arn}/index/byWorkflow"}
# Lambda itself sends what failed, in the function's name.
DEAD_LETTERS = ("sqs:SendMessage", {"Fn::GetAtt": ["CleanupDeadLetters", "Arn"]})
JOB_DEAD_LETTERS = ("sqs:SendMessage", {"Fn::GetAtt": ["JobDeadLetters", "Arn"]})
# A state machine does what it does through functions.
INVOKE = [("lambda:InvokeFunction", {"Fn::GetAtt": [name, "Arn"]}) for name in ("LockTask", "SampleWork")]
# Several locks, or one of several places, are read at once.
LOOK = ("dynamodb:BatchGetItem", TABLE)
# The wake items of executions that wait in line, and their end.
SLEEP, END_OF_SLEEP = ("dynamodb:PutItem", TABLE), ("dynamodb:DeleteItem", TABLE)
# Whoever has a task token names the state machine with it, so this is about all of the account, unless parameters name some.
OF_ALL_MACHINES = {"Fn::Sub": "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:stateMachine:*"}
MACHINES = "arn:aws:states:eu-central-1:123456789012:stateMachine:"
WAKES = [
    ({}, [f"{MACHINES}*"]),
    ({"Samples": "false"}, [f"{MACHINES}*"]),
    # The samples too wait in line.
    ({"CleansExecutionsOf": f"{MACHINES}orders"}, [f"{MACHINES}*"]),
    ({"Samples": "false", "CleansExecutionsOf": f"{MACHINES}orders"}, [f"{MACHINES}orders"]),
    ({"Samples": "false", "CleansExecutionsOf": f"{MACHINES}a,{MACHINES}a/Each"}, [f"{MACHINES}a", f"{MACHINES}a/Each"]),
    ({"Samples": "false", "CleansExecutionsOfPrefix": f"{MACHINES}orders-"}, [f"{MACHINES}orders-*"]),
    (
        {"Samples": "false", "CleansExecutionsOf": f"{MACHINES}a,{MACHINES}b", "CleansExecutionsOfPrefix": f"{MACHINES}c-"},
        [f"{MACHINES}a", f"{MACHINES}b", f"{MACHINES}c-*"],
    ),
]
WAKE = ("states:SendTaskSuccess", OF_ALL_MACHINES)
# What Lambda does on the table's stream in the function's name.
STREAM = {"Fn::GetAtt": ["LockTable", "StreamArn"]}
READ_STREAM = [(f"dynamodb:{action}", STREAM) for action in ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")]
ORDER = [*LOCK, ("dynamodb:UpdateItem", {"Fn::GetAtt": ["OrdersTable", "Arn"]})]
TRANSFER = [
    (f"dynamodb:{action}", {"Fn::GetAtt": [f"{table}Table", "Arn"]})
    for table, write in (("Accounts", "UpdateItem"), ("Transfers", "PutItem"))
    for action in ("GetItem", write)
]
# What Lambda does on the queue in the function's name.
POLL = [
    (f"sqs:{action}", {"Fn::GetAtt": ["OrderMessages", "Arn"]})
    for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
]

# Role: its actions and resources, apart from writing its own logs.
EXPECTED = {
    "AtMostNRole": INVOKE,
    "ChargeOrderRole": ORDER,
    "ExclusiveWorkRole": INVOKE,
    "ExclusiveWorkWithoutLockTaskRole": [*LOCK, INVOKE[1]],
    "FanOutRole": INVOKE,
    "LockCleanerRole": [*LOCK, ("dynamodb:Query", INDEX), END_OF_SLEEP, WAKE, DEAD_LETTERS],
    "LockTaskRole": [*LOCK, LOOK, SLEEP, END_OF_SLEEP, WAKE],
    "LockWakerRole": [END_OF_SLEEP, WAKE, *READ_STREAM],
    "OrderQueueRole": [*ORDER, *POLL],
    "SampleWorkRole": [("dynamodb:UpdateItem", {"Fn::GetAtt": ["WorkTable", "Arn"]})],
    "ScheduledJobRole": [*LOCK, JOB_DEAD_LETTERS],
    "SkipIfRunningRole": INVOKE,
    "TransferRole": [LOCK[1], LOOK, *TRANSFER],
}
# The roles without the samples.
OF_THE_LOCK = ["LockCleanerRole", "LockTaskRole", "LockWakerRole"]
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
# What AWS documents for a table with a key of the customer, but for CreateGrant, which who creates the table needs.
KEY = "arn:aws:kms:eu-central-1:123456789012:key/a1b2c3d4-5678-90ab-cdef-EXAMPLE11111"
USE_OF_KEY = {
    "Effect": "Allow",
    "Action": [f"kms:{action}" for action in (
        "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo",
    )],
    "Resource": KEY,
    "Condition": {"StringLike": {"kms:ViaService": "dynamodb.eu-central-1.amazonaws.com*"}},
}
# What stands in the place of the stack's own lock table and its index when the table exists already.
ARN = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/${ExistingLockTable}"
EXISTING = [
    (TABLE, {"Fn::Sub": ARN}), (INDEX, {"Fn::Sub": f"{ARN}/index/byWorkflow"}),
    (STREAM, {"Fn::Sub": ARN + "/stream/${ExistingLockTableStream}"}),
]
LABEL = "2026-07-01T12:00:00.000"
# In docs/settings.md the four state machines are one line.
STATE_MACHINES = ["AtMostNRole", "ExclusiveWorkRole", "FanOutRole", "SkipIfRunningRole"]
LOGS = "service-role/AWSLambdaBasicExecutionRole"
# What a function in a VPC needs, and no other.
VPC = "service-role/AWSLambdaVPCAccessExecutionRole"
NETWORK = {"SubnetIds": "subnet-1a,subnet-1b", "SecurityGroupIds": "sg-1a"}


# Roles that may only use keys with the prefix: where there is one, and always.
CONFINED, ALWAYS_CONFINED = OF_THE_LOCK, ["ExclusiveWorkWithoutLockTaskRole"]
# An index and a stream have the keys of all locks.
OF_ALL_KEYS = ["dynamodb:Query", *(action for action, _ in READ_STREAM)]
PREFIX = "orders/"
# A state machine without lock-task names the attributes of a lock record, and no others.
OF_RECORD = [
    "leaseEndsAt", "leaseDuration", "ownerName", "isReleased", "fencingToken", "recordVersionNumber", "workflow",
    "brokenVersion", "freezeReason", "ttlAttribute",
]
OF_ATTRIBUTES = {
    "ForAllValues:StringEquals": {"dynamodb:Attributes": ["key", "expiresAt", *OF_RECORD]},
    "StringEqualsIfExists": {
        "dynamodb:ReturnValues": ["NONE", "UPDATED_NEW"], "dynamodb:Select": "SPECIFIC_ATTRIBUTES",
    },
}


def keys_beginning(prefix):
    return {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{prefix}*"]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def condition_of(name, action, prefix):
    """For which keys a role may do this on the lock table. None: for all."""
    if name in CONFINED and action in (SLEEP[0], END_OF_SLEEP[0]):
        return keys_beginning(f"wake/{prefix}")
    if action in OF_ALL_KEYS or not action.startswith("dynamodb:") or not (name in ALWAYS_CONFINED or prefix and name in CONFINED):
        return None
    of_keys = keys_beginning(prefix)
    return {**of_keys, **OF_ATTRIBUTES} if name in ALWAYS_CONFINED else of_keys


def on_existing_table(granted):
    """The same actions, on a lock table that exists already."""
    return [(action, next((new for own, new in EXISTING if own == on), on)) for action, on in granted]


# The policies that Tracing and LogStateMachines add. Neither service has a narrower resource.
OBSERVATION = {
    "StateMachineTraces": [
        f"xray:{action}" for action in ("PutTraceSegments", "PutTelemetryRecords", "GetSamplingRules", "GetSamplingTargets")
    ],
    "StateMachineLogDelivery": [
        *(f"logs:{action}" for action in ("CreateLogDelivery", "GetLogDelivery", "UpdateLogDelivery", "DeleteLogDelivery")),
        *(f"logs:{action}" for action in ("ListLogDeliveries", "PutResourcePolicy", "DescribeResourcePolicies")),
        "logs:DescribeLogGroups",
    ],
}


# AWS's policies for traces: the names of its older and of its newer one.
TRACES = ("awsxraywriteonlyaccess", "awsxraydaemonwriteaccess")


def observation(expansion):
    """What is added to the roles, and to nothing else, when functions and state machines are observed."""
    machines = expansion.of_type("AWS::StepFunctions::StateMachine")
    for name, role in expansion.of_type("AWS::IAM::Role").items():
        added = [arn for arn in role.get("ManagedPolicyArns", []) if not str(arn).rstrip("'}").endswith(LOGS)]
        is_machine = name.removesuffix("Role") in machines
        if is_machine and added != [{"Ref": policy} for policy in OBSERVATION]:
            yield f"{name} has the policies {added}, expected {list(OBSERVATION)}"
        if not is_machine and [str(one).rpartition("/")[2].rstrip("'}").lower() in TRACES for one in added] != [True]:
            yield f"{name} has the policies {added}, expected that of X-Ray"
    for name, policy in expansion.of_type("AWS::IAM::ManagedPolicy").items():
        (statement,) = policy["PolicyDocument"]["Statement"]
        if statement["Action"] != OBSERVATION.get(name):
            yield f"{name} allows {statement['Action']}"
    for name, machine in machines.items():
        logging = machine.get("LoggingConfiguration", {})
        if logging.get("IncludeExecutionData") is not False or not machine["TracingConfiguration"]["Enabled"]:
            yield f"{name} is observed as {logging} and {machine['TracingConfiguration']}"


def findings(expansion, expected):
    prefix = expansion.parameters["LockKeyPrefix"]
    roles = expansion.of_type("AWS::IAM::Role")
    for name in sorted(set(expected) ^ set(roles)):
        yield f"{name} is {'expected and missing' if name in expected else 'not expected'}"
    for name in sorted(set(expected) & set(roles)):
        role = roles[name]
        for arn in role.get("ManagedPolicyArns", []):
            if not str(arn).rstrip("'}").endswith(LOGS):
                yield f"{name} has the managed policy {arn}"
        found = [(action, resource) for action, resource, _ in grants(role)]
        for action, resource, other in grants(role):
            condition = condition_of(name, action, prefix)
            if expansion.resolve(other) != condition:
                yield f"{name} may do {action} under the condition {expansion.resolve(other)}, expected {condition}"
            if "*" in action:
                yield f"{name} may do {action}"
            if "*" in str(resource) and (action, resource) != WAKE:
                yield f"{name} may do {action} on {resource}"
        if sorted(found, key=str) != sorted(expected[name], key=str):
            yield f"{name} may do {found}, expected {expected[name]}"
    for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        for name in expansion.of_type(kind):
            yield f"{name} is a policy beside the roles"
    for name, function in expansion.of_type("AWS::Lambda::Function").items():
        if expansion.binaries.get(name) != own_name(name):
            yield f"{name} runs {expansion.binaries.get(name)}, expected {own_name(name)}"
        if function["Role"] != {"Fn::GetAtt": [f"{name}Role", "Arn"]}:
            yield f"{name} has no role of its own: {function['Role']}"


def on_the_page(path="docs/settings.md"):
    """What the page says that each role may do. A row without a name goes on with the functions of the row before."""
    page = pathlib.Path(path).read_text().partition("\n| function | actions |")[2].partition("\n\n")[0]
    said, roles = {}, []
    for _, of, actions, *_ in (line.split("|") for line in page.splitlines() if line.count("|") == 4):
        named = [f"{name.title().replace('-', '')}Role" for name in re.findall(r"`([\w-]+)`", of)]
        roles = STATE_MACHINES if "state machines" in of else named or roles
        for role in roles:
            said.setdefault(role, set()).update(re.findall(r"`(\w+:\w+)`", actions))
    return said


def findings_on_the_page():
    said = on_the_page()
    for role in sorted(set(said) | set(EXPECTED)):
        expected = {action for action, _ in EXPECTED.get(role, [])}
        if said.get(role) != expected:
            yield f"docs/settings.md says that {role} may do {sorted(said.get(role, []))}, and not {sorted(expected)}"


def on_lock_table(granted):
    return any(str(resource).find("LockTable") >= 0 for _, resource in granted)


def with_key(expansion):
    """Exactly those who use the lock table may use its key, through DynamoDB, and the key is that of the table."""
    for name, role in expansion.of_type("AWS::IAM::Role").items():
        may = {"Ref": "LockTableKeyUse"} in role.get("ManagedPolicyArns", [])
        if may != on_lock_table(EXPECTED[name]):
            yield f"{name} {'may' if may else 'may not'} use the key of the lock table"
    policies = expansion.resolve(expansion.of_type("AWS::IAM::ManagedPolicy"))
    found = {name: policy["PolicyDocument"]["Statement"] for name, policy in policies.items()}
    if found != {"LockTableKeyUse": [USE_OF_KEY]}:
        yield f"the key of the lock table may be used by {found}, expected {USE_OF_KEY}"
    of_table = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
    for table in (one for name, one in expansion.of_type("AWS::DynamoDB::Table").items() if name == "LockTable"):
        if expansion.resolve(table["SSESpecification"]) != of_table:
            yield f"the lock table is encrypted as {table['SSESpecification']}, expected {of_table}"


def woken(expansion, expected):
    """Whose executions the functions of the lock may wake: those of the rule, where parameters name all of them."""
    for name in OF_THE_LOCK:
        found = [expansion.resolve(resource) for action, resource, _ in grants(expansion.of_type("AWS::IAM::Role")[name]) if action == WAKE[0]]
        flat = [one for resource in found for one in (resource if isinstance(resource, list) else [resource])]
        if flat != expected:
            yield f"{name} may wake {flat}, expected {expected}"


def in_vpc(expansion):
    """The functions of the lock are in the VPC and may be there, and nobody else."""
    inside = {name.removesuffix("Role") for name in OF_THE_LOCK} if expansion.parameters["SubnetIds"] != [""] else set()
    network = {name: NETWORK[name].split(",") for name in NETWORK}
    for name, function in expansion.of_type("AWS::Lambda::Function").items():
        if expansion.with_values(function.get("VpcConfig")) != (network if name in inside else None):
            yield f"{name} is in the network {function.get('VpcConfig')}"
    for name, role in expansion.of_type("AWS::IAM::Role").items():
        may = any(str(arn).rstrip("'}").endswith(VPC) for arn in role.get("ManagedPolicyArns", []))
        if may != (name.removesuffix("Role") in inside):
            yield f"{name} {'may' if may else 'may not'} be in a VPC"


def bounded(expansion):
    for name, role in expansion.of_type("AWS::IAM::Role").items():
        if expansion.resolve(role.get("PermissionsBoundary")) != BOUNDARY:
            yield f"{name} has no permissions boundary"


def own_name(function):
    """What the program of a function is called: LockTask runs lock-task."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", function).lower()


def main(path):
    found = list(findings_on_the_page())
    for prefix, sample, wakes in itertools.product(("", PREFIX), ("false", "true"), ("false", "true")):
        parameters = {"LockKeyPrefix": prefix, "SampleWithoutLockTask": sample, "WakeByStream": wakes}
        left_out = {*(ALWAYS_CONFINED if sample == "false" else []), *(["LockWakerRole"] if wakes == "false" else [])}
        expected = {name: granted for name, granted in EXPECTED.items() if name not in left_out}
        on_existing = {name: on_existing_table(granted) for name, granted in expected.items()}
        existing = Expansion(path, **parameters, ExistingLockTable="locks", ExistingLockTableStream=LABEL)
        found += [*findings(Expansion(path, **parameters), expected), *findings(existing, on_existing)]
        if "LockTable" in existing.resources:
            found.append("LockTable is created although there is an existing lock table")
        alone = Expansion(path, **parameters, Samples="false")
        found += findings(alone, {name: granted for name, granted in expected.items() if name in OF_THE_LOCK})
        found += bounded(Expansion(path, **parameters, PermissionsBoundary=BOUNDARY))
    for parameters, expected in WAKES:
        found += [f"{parameters}: {one}" for one in woken(Expansion(path, WakeByStream="true", **parameters), expected)]
    for network in (NETWORK, {name: "" for name in NETWORK}):
        found += in_vpc(Expansion(path, WakeByStream="true", **network))
    for table in ({}, {"ExistingLockTable": "locks", "ExistingLockTableStream": LABEL}):
        options = {"SampleWithoutLockTask": "true", "WakeByStream": "true", **table}
        found += with_key(Expansion(path, **options, LockTableKeyArn=KEY))
    found += observation(Expansion(path, Tracing="Active", LogStateMachines="ERROR", WakeByStream="true"))
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    for name, granted in sorted(EXPECTED.items()):
        print(f"{name}: {', '.join(action for action, _ in granted)}")


if __name__ == "__main__":
    main(sys.argv[1])
