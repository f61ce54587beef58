"""Does the template hold together? python deploy/template/combinations.py TEMPLATE

Expands the template with each combination of samples, table, architecture, options and partition. Nothing that is created may
refer to something that is not, outputs included, and no ARN may be of another partition.
"""

import itertools
import re
import sys

from samtranslator.translator.arn_generator import ArnGenerator
from samtranslator.yaml_helper import yaml_parse

from expansion import Expansion

VALUES = {
    "Samples": ("true", "false"),
    "ExistingLockTable": ("", "locks"),
    "Architecture": ("arm64", "x86_64"),
}
# What is left out by default, and what is there by default.
OPTIONS = [
    {},
    {"Alarms": "false", "SampleWithoutLockTask": "true", "CleansExecutionsOfPrefix": "arn:aws:states:eu-central-1:123456789012:stateMachine:", "CleansDurableExecutions": "true"},
    {"Tracing": "Active", "LogStateMachines": "ALL", "Metrics": "prefix"},
    {"LockTableKeyArn": "arn:aws:kms:eu-central-1:123456789012:key/a1b2c3d4", "SampleWithoutLockTask": "true", "Tracing": "Active"},
    {"SubnetIds": "subnet-1a", "SecurityGroupIds": "sg-1a", "WakeByStream": "true", "ExistingLockTableStream": "2026-07-01T12:00:00.000"},
    {"LockKeyPrefix": "orders/", "HmacKeysSecret": "keys", "Metrics": "none", "LockTaskConcurrency": "5"},
    {"WakeByStream": "true", "ExistingLockTableStream": "2026-07-01T12:00:00.000"},
    {"WakeByStream": "true", "ExistingLockTableStream": "2026-07-01T12:00:00.000", "Alarms": "false", "Tracing": "Active", "LockKeyPrefix": "orders/"},
]
PARTITIONS = {"eu-central-1": "aws", "cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov"}
PSEUDO = {f"AWS::{name}" for name in ("Region", "AccountId", "Partition", "StackName", "NoValue", "URLSuffix")}


def references(value):
    """The names that a value refers to."""
    if isinstance(value, list):
        for one in value:
            yield from references(one)
    elif isinstance(value, dict):
        for how, what in value.items():
            if how == "Ref":
                yield what
            elif how == "Fn::GetAtt":
                yield what.split(".")[0] if isinstance(what, str) else what[0]
            elif how == "Fn::Sub":
                text = what if isinstance(what, str) else what[0]
                own = set() if isinstance(what, str) else set(what[1])
                yield from {name.split(".")[0] for name in re.findall(r"\$\{([^}!]+)\}", text)} - own
                yield from references([] if isinstance(what, str) else list(what[1].values()))
            else:
                yield from references(what)


def texts(value):
    if isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def findings(path, region, parameters):
    # SAM takes the partition of managed policies from here, and keeps the Region of its first use.
    ArnGenerator.BOTO_SESSION_REGION_NAME = region
    expansion = Expansion(path, **parameters)
    with open(path, encoding="utf-8") as file:
        outputs = yaml_parse(file.read())["Outputs"]
    shown = {name: one for name, one in outputs.items() if expansion.conditions.get(one.get("Condition"), True)}
    known = set(expansion.resources) | set(expansion.parameters) | PSEUDO
    for kind, all_of_it in (("resource", expansion.resources), ("output", expansion.decided(shown))):
        for name, one in all_of_it.items():
            for missing in sorted(set(references(one)) - known):
                yield f"the {kind} {name} refers to {missing}, which is not created"
            after = one.get("DependsOn", [])
            for missing in {after} - known if isinstance(after, str) else set(after) - known:
                yield f"the {kind} {name} comes after {missing}, which is not created"
            for text in texts(one):
                for partition in set(re.findall(r"arn:(aws[a-z-]*):", text)) - {PARTITIONS[region]}:
                    yield f"in {region} the {kind} {name} has an ARN of {partition}: {text}"


def main(path):
    combinations = [
        (region, dict(zip(VALUES, values)) | options)
        for *values, options, region in itertools.product(*VALUES.values(), OPTIONS, PARTITIONS)
    ]
    found = {finding: of for of in combinations for finding in findings(path, *of)}
    for finding, of in found.items():
        print(f"{of}: {finding}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{len(combinations)} combinations of {', '.join(VALUES)}, options and partition")


if __name__ == "__main__":
    main(sys.argv[1])
