"""What may the functions do? python3 template/roles.py TEMPLATE

Expands the template as CloudFormation would and holds every role that comes out against the list
below: these actions, on these resources, and nothing else. A role that is not listed fails.
"""

import sys
from unittest import mock

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

TABLE = {"Fn::GetAtt": ["LockTable", "Arn"]}
LOCK = [("dynamodb:GetItem", TABLE), ("dynamodb:UpdateItem", TABLE)]

# Role: its actions and resources, apart from writing its own logs.
EXPECTED = {
    "LockTaskRole": LOCK,
    "ScheduledJobRole": LOCK,
}
LOGS = "service-role/AWSLambdaBasicExecutionRole"


def as_list(value):
    return value if isinstance(value, list) else [value]


def expand(path):
    with open(path, encoding="utf-8") as file:
        template = yaml_parse(file.read())
    defaults = {name: parameter.get("Default") for name, parameter in template["Parameters"].items()}
    loader = mock.Mock()
    loader.load.return_value = {}
    with_code = template["Resources"].values()
    for resource in with_code:
        if resource["Type"] == "AWS::Serverless::Function":
            # Packaging replaces the folder by an object in S3.
            resource["Properties"]["CodeUri"] = "s3://bucket/key"
    return transform(template, defaults, loader)["Resources"]


def grants(role):
    """Every (action, resource) of a role's own policies."""
    for policy in role.get("Policies", []):
        for statement in as_list(policy["PolicyDocument"]["Statement"]):
            assert statement["Effect"] == "Allow", statement
            assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
            for action in as_list(statement["Action"]):
                for resource in as_list(statement["Resource"]):
                    yield action, resource


def findings(resources):
    roles = {name: one["Properties"] for name, one in resources.items() if one["Type"] == "AWS::IAM::Role"}
    for name in sorted(set(EXPECTED) ^ set(roles)):
        yield f"{name} is {'expected and missing' if name in EXPECTED else 'not expected'}"
    for name in sorted(set(EXPECTED) & set(roles)):
        role = roles[name]
        for arn in role.get("ManagedPolicyArns", []):
            if not str(arn).rstrip("'}").endswith(LOGS):
                yield f"{name} has the managed policy {arn}"
        found = list(grants(role))
        for action, resource in found:
            if "*" in action:
                yield f"{name} may do {action}"
            if resource == "*" or "*" in str(resource):
                yield f"{name} may do {action} on {resource}"
        if sorted(found, key=str) != sorted(EXPECTED[name], key=str):
            yield f"{name} may do {found}, expected {EXPECTED[name]}"
    for name, one in resources.items():
        if one["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            yield f"{name} is a policy beside the roles"
        if one["Type"] == "AWS::Lambda::Function":
            role = one["Properties"]["Role"]
            if role != {"Fn::GetAtt": [f"{name}Role", "Arn"]}:
                yield f"{name} has no role of its own: {role}"


def main(path):
    found = list(findings(expand(path)))
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    for name, granted in sorted(EXPECTED.items()):
        print(f"{name}: {', '.join(action for action, _ in granted)}")


if __name__ == "__main__":
    main(sys.argv[1])
