"""What reaches the functions? python deploy/template/wiring.py TEMPLATE

Expands the template with a value of each parameter that a function reads, and looks at the variable that it arrives in. Each
function logs into its own group, and what is invoked asynchronously or by a queue has the limits below.
"""

import sys

from expansion import Expansion

SECRET = "a-secret"
# The parameters, the function, and the variables that they become.
VARIABLES = [
    ({}, "LockTask", {
        "LOCK_KEY_PREFIX": "", "MAX_LEASE_SECONDS": "86400", "MAX_WAITED_SECONDS": "86400", "LOCK_HMAC_KEYS": "",
        "LOCK_HMAC_REQUIRED": "true", "SHOW_OWNERS": "true",
    }),
    ({"LockKeyPrefix": "orders/"}, "LockTask", {"LOCK_KEY_PREFIX": "orders/"}),
    ({"MaxLeaseSeconds": "600"}, "LockTask", {"MAX_LEASE_SECONDS": "600", "MAX_WAITED_SECONDS": "86400"}),
    ({"MaxWaitedSeconds": "700"}, "LockTask", {"MAX_WAITED_SECONDS": "700", "MAX_LEASE_SECONDS": "86400"}),
    ({"HmacRequired": "false"}, "LockTask", {"LOCK_HMAC_REQUIRED": "false", "SHOW_OWNERS": "true"}),
    ({"ShowOwners": "false"}, "LockTask", {"SHOW_OWNERS": "false", "LOCK_HMAC_REQUIRED": "true"}),
    ({"HmacKeysSecret": SECRET}, "LockTask", {"LOCK_HMAC_KEYS": "{{resolve:secretsmanager:a-secret}}"}),
    (
        {"HmacKeysSecret": SECRET, "HmacKeysVersion": "1" * 36}, "LockTask",
        {"LOCK_HMAC_KEYS": "{{resolve:secretsmanager:a-secret:SecretString:::" + "1" * 36 + "}}"},
    ),
    # A version alone is nothing.
    ({"HmacKeysVersion": "1" * 36}, "LockTask", {"LOCK_HMAC_KEYS": ""}),
    ({}, "ScheduledJob", {"JOB_NAME": "scheduled-job", "ONCE_PER_TICK": "false"}),
    ({"JobName": "nightly"}, "ScheduledJob", {"JOB_NAME": "nightly"}),
    ({"OncePerTick": "true"}, "ScheduledJob", {"ONCE_PER_TICK": "true"}),
    ({"PaymentGatewayUrl": "https://example.com"}, "ChargeOrder", {"PAYMENT_GATEWAY_URL": "https://example.com"}),
    ({"PaymentGatewayUrl": "https://example.com"}, "OrderQueue", {"PAYMENT_GATEWAY_URL": "https://example.com"}),
    ({"GatewayConnections": "7"}, "CallGateway", {"GATEWAY_CONNECTIONS": "7"}),
]
# The same for each function.
SHARED = [
    ({"ExistingLockTable": "locks"}, {"LOCK_TABLE": "locks"}),
    ({"MaxClockSkewMs": "500"}, {"LOCK_MAX_CLOCK_SKEW_MS": "500"}),
    ({"LeaseDialect": "go"}, {"LOCK_LEASE_DIALECT": "go"}),
    ({"Metrics": "none"}, {"METRICS_NAMESPACE": ""}),
    ({"Metrics": "function"}, {"METRICS_NAMESPACE": "LambdaLock/stack", "METRICS_BY_PREFIX": "false"}),
    ({"Metrics": "prefix"}, {"METRICS_NAMESPACE": "LambdaLock/stack", "METRICS_BY_PREFIX": "true"}),
]
# What is invoked asynchronously: how often Lambda tries again, for how long, and where what failed goes.
ASYNCHRONOUS = {"LockCleaner": (2, 3600, "CleanupDeadLetters"), "ScheduledJob": (2, 600, "JobDeadLetters")}
# How many batches of a queue are under way at once.
AT_ONCE = {"OrderQueue": 10}


def variables(expansion, name):
    given = expansion.of_type("AWS::Lambda::Function")[name].get("Environment", {}).get("Variables", {})
    return {variable: str(expansion.resolve(value)) for variable, value in given.items()}


def findings(path):
    for parameters, name, expected in VARIABLES:
        found = variables(Expansion(path, **parameters), name)
        for variable, value in expected.items():
            if found.get(variable) != value:
                yield f"{parameters}: {variable} of {name} is {found.get(variable)!r}, expected {value!r}"
    for parameters, expected in SHARED:
        expansion = Expansion(path, **parameters)
        for name in expansion.of_type("AWS::Lambda::Function"):
            found = variables(expansion, name)
            # sample-work knows no locks.
            for variable in expected:
                if name != "SampleWork" and found.get(variable) != expected[variable]:
                    yield f"{parameters}: {variable} of {name} is {found.get(variable)!r}, expected {expected[variable]!r}"
    expansion = Expansion(path)
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
        one["FunctionName"]["Ref"]: one.get("ScalingConfig", {}).get("MaximumConcurrency")
        for one in expansion.of_type("AWS::Lambda::EventSourceMapping").values()
    }
    if found != AT_ONCE:
        yield f"batches of queues at once: {found}, expected {AT_ONCE}"


def main(path):
    found = list(findings(path))
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{len(VARIABLES) + len(SHARED)} settings reach their functions")


if __name__ == "__main__":
    main(sys.argv[1])
