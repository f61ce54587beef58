"""What does each parameter change? python deploy/template/parameters.py TEMPLATE

Gives each parameter another value, and compares what the template expands to. It changes what EFFECTS says, as EFFECTS says,
and nothing else. Each parameter has a constraint, by which CloudFormation refuses the value in REFUSED, and a rule refuses
REFUSED_TOGETHER. samconfig.toml gives the parameters that docs/deploy.md says.
"""

import pathlib
import re
import sys
import tomllib

from expansion import ACCOUNT, REGION, Expansion

FUNCTIONS = ["ChargeOrder", "LockCleaner", "LockTask", "LockWaker", "OrderQueue", "SampleWork", "ScheduledJob", "Transfer"]
MACHINES = ["AtMostN", "ExclusiveWork", "FanOut", "SkipIfRunning"]
ROLES = [f"{name}Role" for name in FUNCTIONS + MACHINES]
# Those whose rows somebody may want back.
TABLES = ["AccountsTable", "LockTable", "OrdersTable", "TransfersTable"]
OF_LOCKS = ["LockTask", "LockCleaner", "LockWaker"]
ALARMS = ["CleanupsFailed", "ClocksApart", "JobFailed", "LockCleanerFails", "LockTableThrottled", "LockTaskSlow"]
ALARMS += ["LockTaskThrottled", "LocksContended", "LocksLostOrUnknown", "OrdersFailed", "RepairNeeded"]
FILTERS = ["LockCleanerClocksApart", "LockCleanerRepairNeeded", "LockTaskClocksApart", "LockTaskLostOrUnknown", "LockTaskRepairNeeded"]
FILTERS += ["LockWakerRepairNeeded"]
EXISTS = "exists"
# Another check looks at these values.
ANY = object()
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:operators"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
LABEL, OTHER_LABEL = "2026-07-01T12:00:00.000", "2026-07-02T12:00:00.000"
MACHINE = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:"
VERSION = "1" * 36
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/a1b2c3d4"
LAYER = f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:roots:3"


def variable(name, functions, before, after):
    return f"Environment.{name}", functions, before, after


def created(*resources):
    return EXISTS, resources, None, True


def left_out(*resources):
    return EXISTS, resources, True, None


def stream(label):
    arn = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/locks/stream/"
    return {"Fn::Sub": arn + label}


# Parameter: another value than the default, and what changes: the property or variable, of which resources, from, to.
EFFECTS = {
    "ExistingLockTable": ("locks", [
        left_out("LockTable"), variable("LOCK_TABLE", FUNCTIONS, {"Ref": "LockTable"}, "locks"),
        ("Policies", [f"{name}Role" for name in FUNCTIONS if name != "SampleWork"], ANY, ANY),
        ("Dimensions", ["LocksContended"], ANY, [{"Name": "TableName", "Value": "locks"}]),
        ("Metrics", ["LockTableThrottled"], ANY, ANY),
        ("DashboardBody", ["LockDashboard"], ANY, ANY),
        ("EventSourceArn", ["LockWakerChanges"], {"Fn::GetAtt": ["LockTable", "StreamArn"]}, stream(LABEL)),
    ]),
    "ExistingLockTableStream": (OTHER_LABEL, [
        ("EventSourceArn", ["LockWakerChanges"], stream(LABEL), stream(OTHER_LABEL)), ("Policies", ["LockWakerRole"], ANY, ANY),
    ]),
    "WakeByStream": ("true", [
        created("LockWaker", "LockWakerRole", "LockWakerLogs", "LockWakerChanges", "LockWakerRepairNeeded"),
        ("StreamSpecification", ["LockTable"], None, {"StreamViewType": "NEW_AND_OLD_IMAGES"}),
    ]),
    "KeepTable": ("false", [
        ("DeletionPolicy", TABLES, "RetainExceptOnCreate", "Delete"), ("UpdateReplacePolicy", TABLES, "Retain", "Delete"),
    ]),
    "TableDeletionProtection": ("true", [("DeletionProtectionEnabled", TABLES, False, True)]),
    "TimeToLive": ("false", [
        variable("LOCK_TTL_ATTRIBUTE", FUNCTIONS, "expiresAt", ""),
        ("TimeToLiveSpecification", ["LockTable"], *({"AttributeName": "expiresAt", "Enabled": on} for on in (True, False))),
    ]),
    "LockTableKeyArn": (KEY, [
        created("LockTableKeyUse"),
        ("SSESpecification", ["LockTable"], {"SSEEnabled": True}, {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}),
        ("ManagedPolicyArns", [f"{name}Role" for name in FUNCTIONS if name != "SampleWork"], ANY, ANY),
    ]),
    "MaxClockSkewMs": ("500", [variable("LOCK_MAX_CLOCK_SKEW_MS", FUNCTIONS, "2000", "500")]),
    "LeaseDialect": ("go", [variable("LOCK_LEASE_DIALECT", FUNCTIONS, "java", "go")]),
    "Architecture": ("x86_64", [("Architectures", FUNCTIONS, ["arm64"], ["x86_64"])]),
    "LogRetentionDays": ("7", [("RetentionInDays", [*(f"{name}Logs" for name in FUNCTIONS), "StateMachineLogs"], 30, "7")]),
    "Metrics": ("none", [
        variable("METRICS_NAMESPACE", FUNCTIONS, {"Fn::Sub": "LambdaLock/${AWS::StackName}"}, ""),
        ("DashboardBody", ["LockDashboard"], ANY, ANY),
    ]),
    "Tracing": ("Active", [
        created("StateMachineTraces"),
        ("TracingConfiguration", MACHINES, {"Enabled": False}, {"Enabled": True}),
        ("TracingConfig", FUNCTIONS, None, {"Mode": "Active"}),
        ("ManagedPolicyArns", ROLES, ANY, ANY),
    ]),
    "LogStateMachines": ("ALL", [
        created("StateMachineLogDelivery", "StateMachineLogs"),
        ("LoggingConfiguration", MACHINES, None, ANY),
        ("ManagedPolicyArns", [f"{name}Role" for name in MACHINES], ANY, ANY),
    ]),
    "Alarms": ("false", [left_out(*ALARMS, *FILTERS, "LockDashboard")]),
    "AlarmTopicArn": (TOPIC, [(actions, ALARMS, None, [TOPIC]) for actions in ("AlarmActions", "OKActions")]),
    "ContentionThreshold": ("7", [("Threshold", ["LocksContended"], 3000, "7")]),
    "LogLevel": ("WARN", [("LoggingConfig.ApplicationLogLevel", FUNCTIONS, "INFO", "WARN")]),
    "PermissionsBoundary": (BOUNDARY, [("PermissionsBoundary", ROLES, None, BOUNDARY)]),
    "SubnetIds": ("subnet-1a,subnet-1b", [
        ("VpcConfig", OF_LOCKS, None, {"SubnetIds": ["subnet-1a", "subnet-1b"], "SecurityGroupIds": ["sg-1a"]}),
        ("ManagedPolicyArns", [f"{name}Role" for name in OF_LOCKS], ANY, ANY),
    ]),
    "SecurityGroupIds": ("sg-1b,sg-1c", [("VpcConfig", OF_LOCKS, ANY, {"SubnetIds": ["subnet-1a"], "SecurityGroupIds": ["sg-1b", "sg-1c"]})]),
    "CaBundleLayerArn": (LAYER, [
        ("Layers", FUNCTIONS, [], [LAYER]), variable("AWS_CA_BUNDLE", FUNCTIONS, None, "/opt/ca-bundle.pem"),
    ]),
    "MaxLeaseSeconds": ("600", [variable("MAX_LEASE_SECONDS", ["LockTask"], 86400, "600")]),
    "MaxWaitedSeconds": ("700", [variable("MAX_WAITED_SECONDS", ["LockTask"], 86400, "700")]),
    "HmacKeysSecret": ("keys", [variable("LOCK_HMAC_KEYS", ["LockTask"], "", {"Fn::Sub": "{{resolve:secretsmanager:keys}}"})]),
    "HmacKeysVersion": (VERSION, [variable(
        "LOCK_HMAC_KEYS", ["LockTask"], {"Fn::Sub": "{{resolve:secretsmanager:keys}}"},
        {"Fn::Sub": "{{resolve:secretsmanager:keys:SecretString:::" + VERSION + "}}"},
    )]),
    "HmacRequired": ("false", [variable("LOCK_HMAC_REQUIRED", ["LockTask"], "true", "false")]),
    "ShowOwners": ("false", [variable("SHOW_OWNERS", ["LockTask"], "true", "false")]),
    "LockTaskConcurrency": ("5", [("ReservedConcurrentExecutions", ["LockTask"], None, "5")]),
    "LockCleanerConcurrency": ("6", [("ReservedConcurrentExecutions", ["LockCleaner"], None, "6")]),
    # Without the samples also whom the functions may wake: see roles.py.
    "CleansExecutionsOf": (f"{MACHINE}orders", [("EventPattern", ["ExecutionEnded"], ANY, ANY)]),
    "CleansExecutionsOfPrefix": (f"{MACHINE}orders-", [("EventPattern", ["ExecutionEnded"], ANY, ANY)]),
    "LockKeyPrefix": ("orders/", [
        variable("LOCK_KEY_PREFIX", OF_LOCKS, "", "orders/"), ("Policies", [f"{name}Role" for name in OF_LOCKS], ANY, ANY),
    ]),
    "CleansDurableExecutions": ("true", [
        created("DurableExecutionEnded", "DurableExecutionEndedMayInvoke"), ("PolicyDocument", ["CleanupDeadLettersPolicy"], ANY, ANY),
    ]),
    "SampleWithoutLockTask": ("true", [
        created("ExclusiveWorkWithoutLockTask", "ExclusiveWorkWithoutLockTaskRole"), ("EventPattern", ["ExecutionEnded"], ANY, ANY),
    ]),
    "JobName": ("nightly", [variable("JOB_NAME", ["ScheduledJob"], "scheduled-job", "nightly")]),
    "ScheduleExpression": ("rate(2 hours)", [("ScheduleExpression", ["ScheduledJobTick"], "rate(1 hour)", "rate(2 hours)")]),
    "ScheduleState": ("ENABLED", [("State", ["ScheduledJobTick"], "DISABLED", "ENABLED")]),
    "OncePerTick": ("true", [variable("ONCE_PER_TICK", ["ScheduledJob"], "false", "true")]),
    "PaymentGatewayUrl": ("https://pay", [variable("PAYMENT_GATEWAY_URL", ["ChargeOrder", "OrderQueue"], "", "https://pay")]),
}
# With which other parameters, where it changes nothing, or less, by itself.
WITH = {
    "HmacKeysVersion": {"HmacKeysSecret": "keys"}, "LogRetentionDays": {"LogStateMachines": "ALL"},
    "WakeByStream": {"WakeByStream": "false"}, "ExistingLockTable": {"ExistingLockTableStream": LABEL},
    "SubnetIds": {"SecurityGroupIds": "sg-1a"}, "SecurityGroupIds": {"SecurityGroupIds": "sg-1a", "SubnetIds": "subnet-1a"},
    "ExistingLockTableStream": {"ExistingLockTable": "locks", "ExistingLockTableStream": LABEL},
}
# A parameter is looked at with all functions.
ALL_FUNCTIONS = {"WakeByStream": "true"}
# What the samples are, other checks say. A value of its own has a variable of METRICS_BY_PREFIX.
BY_PREFIX = ("prefix", [variable("METRICS_BY_PREFIX", FUNCTIONS, "false", "true")])
# A value of each parameter that CloudFormation refuses.
REFUSED = {
    "Samples": "yes", "KeepTable": "no", "ExistingLockTable": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/locks",
    "TableDeletionProtection": "yes", "TimeToLive": "on", "MaxClockSkewMs": "2 s", "LeaseDialect": "python", "Architecture": "arm",
    "LogRetentionDays": "2", "Metrics": "key", "Tracing": "PassThrough", "LogStateMachines": "DEBUG", "Alarms": "no",
    "AlarmTopicArn": "operators", "ContentionThreshold": "-1", "LogLevel": "DEBUG", "PermissionsBoundary": "boundary",
    "MaxLeaseSeconds": "31622401", "MaxWaitedSeconds": "0", "HmacKeysSecret": "a secret", "HmacKeysVersion": "AWSCURRENT",
    "HmacRequired": "no", "ShowOwners": "no", "LockTaskConcurrency": "-1", "LockCleanerConcurrency": "many",
    "CleansExecutionsOf": "orders", "CleansExecutionsOfPrefix": f"arn:aws:states:{REGION}:{ACCOUNT}:", "LockKeyPrefix": "orders",
    "CleansDurableExecutions": "yes", "SampleWithoutLockTask": "yes", "JobName": "", "ScheduleExpression": "hourly",
    "ScheduleState": "off", "OncePerTick": "yes", "PaymentGatewayUrl": "http://pay.example.com",
    "LockTableKeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:alias/locks",
    "SubnetIds": "10.0.0.0/24", "SecurityGroupIds": "default", "CaBundleLayerArn": LAYER.removesuffix(":3"),
    "WakeByStream": "yes", "ExistingLockTableStream": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/locks/stream/{LABEL}",
}
# Values that a rule refuses, because they belong together and one is missing.
REFUSED_TOGETHER = [{"WakeByStream": "true", "ExistingLockTable": "locks"}]
# What changes nothing without another parameter.
WITHOUT_EFFECT = [
    {"HmacKeysVersion": VERSION}, {"ExistingLockTableStream": LABEL}, {"SecurityGroupIds": "sg-1a"},
    {"ExistingLockTableStream": LABEL, "WakeByStream": "true"},
]


def parts(expansion):
    """Each property of each resource, and each variable of a function. The values of parameters are in their places."""
    found = {}
    for name, resource in expansion.with_values(expansion.resources).items():
        found[name, EXISTS] = True
        found.update({(name, policy): resource.get(policy) for policy in ("DeletionPolicy", "UpdateReplacePolicy")})
        for part, value in resource.get("Properties", {}).items():
            inside = {"Environment": "Variables", "LoggingConfig": None}
            if part in inside:
                values = value.get(inside[part], value)
                found.update({(name, f"{part}.{one}"): values[one] for one in values})
            else:
                found[name, part] = value
    return found


def changes(before, after):
    """What differs, apart from the properties of resources that are created or left out."""
    different = {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}
    whole = {name for name, part in different if part == EXISTS}
    return {(name, part) for name, part in different if part == EXISTS or name not in whole}


def findings(path):
    for parameter, (value, effects) in [*EFFECTS.items(), ("Metrics", BY_PREFIX)]:
        others = ALL_FUNCTIONS | WITH.get(parameter, {})
        before, after = parts(Expansion(path, **others)), parts(Expansion(path, **others | {parameter: value}))
        expected = {(name, part): of for part, resources, *of in effects for name in resources}
        found = changes(before, after)
        for name, part in sorted(found ^ expected.keys()):
            yield f"{parameter}={value} {'changes' if (name, part) in found else 'does not change'} {part} of {name}"
        for at in sorted(found & expected.keys()):
            for is_, should in zip((before.get(at), after.get(at)), expected[at]):
                if should is not ANY and is_ != should:
                    yield f"{parameter}={value}: {at[1]} of {at[0]} is {is_!r}, expected {should!r}"
    for given in WITHOUT_EFFECT:
        others = {name: value for name, value in given.items() if name in ALL_FUNCTIONS}
        if changes(parts(Expansion(path, **others)), parts(Expansion(path, **given))):
            yield f"{given} changes something without the other parameter"
    known = set(Expansion(path).parameters)
    for parameter in sorted(known ^ (EFFECTS.keys() | {"Samples"})):
        yield f"{parameter} is not a parameter, or nobody says what it changes"
    for parameter in sorted(known ^ REFUSED.keys()):
        yield f"{parameter} is not a parameter, or no value of it is refused"
    for refused in [*({parameter: value} for parameter, value in REFUSED.items()), *REFUSED_TOGETHER]:
        try:
            Expansion(path, **refused)
            yield f"{refused} is not refused"
        except ValueError:
            pass


def configured(path):
    """What `sam build` and `sam deploy` deploy, without and with `--config-env production`."""
    config = tomllib.loads(pathlib.Path("samconfig.toml").read_text())
    given = {name: of["global"]["parameters"]["parameter_overrides"] for name, of in config.items() if name != "version"}
    for name, of in config.items():
        # One place for build and deploy, so that they agree.
        if name != "version" and any("parameter_overrides" in one["parameters"] for how, one in of.items() if how != "global"):
            yield f"samconfig.toml has two places for the parameters of {name}"
    default, production = (
        Expansion(path, **dict(one.split("=", 1) for one in given[name].split())) for name in ("default", "production")
    )
    if parts(default) != parts(Expansion(path)):
        yield "samconfig.toml does not deploy the defaults"
    alone = Expansion(path, Samples="false", TableDeletionProtection="true")
    # A new account has a limit of 10 or 50, and Lambda then refuses every reservation.
    for name, function in production.of_type("AWS::Lambda::Function").items():
        if "ReservedConcurrentExecutions" in function:
            yield f"samconfig.toml reserves concurrency for {name}, which a new account refuses"
    if parts(production) != parts(alone):
        yield f"samconfig.toml does not deploy the lock alone for production: {sorted(changes(parts(alone), parts(production)))}"
    page = re.sub(r"\s*\\\n\s*", " ", pathlib.Path("docs/deploy.md").read_text())
    if f"--config-env production --parameter-overrides {given['production']} " not in page:
        yield f"docs/deploy.md does not have the parameters of production: {given['production']}"


def main(path):
    found = [*findings(path), *configured(path)]
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{len(EFFECTS)} parameters change what they should")


if __name__ == "__main__":
    main(sys.argv[1])
