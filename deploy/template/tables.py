"""Do the templates make the same lock table? python deploy/template/tables.py TEMPLATE LOCK_TABLE MULTI_REGION

The table of lock-table.yaml has to be that of template.yaml. Only its name may be chosen, and it is always retained. A table that
is retained is deleted all the same when the deployment that creates it fails: otherwise each failed attempt would leave one, and one
with a name of its own would make the next attempt fail.
"""

import itertools
import sys

from samtranslator.yaml_helper import yaml_parse

from expansion import Expansion

# What happens to a table with its stack, and when an update replaces it. CloudFormation knows the first only for DeletionPolicy.
KEPT, DELETED = ("RetainExceptOnCreate", "Retain"), ("Delete", "Delete")
# The counters of a sample. Nobody wants them back.
NEVER_KEPT = ["WorkTable"]


def policies(resource):
    return resource["DeletionPolicy"], resource["UpdateReplacePolicy"]


def retention(path, *others):
    """What is found about the policies of all tables, of template.yaml and of those that always keep theirs."""
    for keep, kept in (("true", KEPT), ("false", DELETED)):
        for name, one in Expansion(path, KeepTable=keep).resources.items():
            if one["Type"] == "AWS::DynamoDB::Table" and policies(one) != (DELETED if name in NEVER_KEPT else kept):
                yield f"KeepTable={keep}: {name} has the policies {policies(one)}"
    for other in others:
        with open(other, encoding="utf-8") as file:
            for name, one in yaml_parse(file.read())["Resources"].items():
                if policies(one) != KEPT:
                    yield f"{other}: {name} has the policies {policies(one)}, expected {KEPT}"


def main(path, of_table, of_regions):
    found = list(retention(path, of_table, of_regions))
    key = "arn:aws:kms:eu-central-1:123456789012:key/a1b2c3d4"
    for protection, expires, stream, of in itertools.product(*[("true", "false")] * 3, ("", key)):
        parameters = {"TableDeletionProtection": protection, "TimeToLive": expires, "WakeByStream": stream, "LockTableKeyArn": of}
        one, other = (Expansion(template, **parameters).resources["LockTable"]["Properties"] for template in (path, of_table))
        for name in sorted(set(one) | set(other) - {"TableName"}):
            if one.get(name) != other.get(name):
                found.append(f"{parameters}, {name}: {path} has {one.get(name)}, and {of_table} has {other.get(name)}")
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print("the lock table of both templates is the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
