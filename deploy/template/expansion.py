"""The template as CloudFormation would expand it: python deploy/template/expansion.py TEMPLATE [PARAMETER=VALUE …]

Prints, as JSON, what a copy of the sample on one machine needs: per function (by the name of its
binary) the timeout, memory, environment and what its role allows, per state machine (by its logical name) what its role
allows on DynamoDB, every table as CreateTable takes it, and every queue with the function that gets its messages. References are resolved to the names and ARNs that a
stack in ACCOUNT and REGION could have. Parameters have their defaults.
"""

import json
import os
import re
import sys
from unittest import mock

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

REGION = "eu-central-1"
ACCOUNT = "123456789012"
SERVICES = {"AWS::DynamoDB::Table": "dynamodb:{}:{}:table/{}", "AWS::SQS::Queue": "sqs:{}:{}:{}"}
# How ARNs end. That of a stream has the time at which it began.
ENDS = {"Arn": "", "StreamArn": "/stream/2026-07-01T12:00:00.000"}
# What CreateTable takes of a table's properties.
CREATE_TABLE = ["AttributeDefinitions", "KeySchema", "BillingMode", "GlobalSecondaryIndexes", "LocalSecondaryIndexes"]

NOTHING = {"Ref": "AWS::NoValue"}


class Expansion:
    """A template, expanded with these parameters, and with the defaults of the others."""

    def __init__(self, path, **parameters):
        os.environ.setdefault("AWS_DEFAULT_REGION", REGION)
        with open(path, encoding="utf-8") as file:
            source = yaml_parse(file.read())
        self.parameters = {name: one.get("Default") for name, one in source["Parameters"].items()}
        unknown = set(parameters) - set(self.parameters)
        if unknown:
            raise ValueError(f"the template has no parameter {', '.join(sorted(unknown))}")
        self.parameters |= parameters
        for name, value in self.parameters.items():
            described = source["Parameters"][name]
            if described["Type"] == "CommaDelimitedList":
                self.parameters[name] = value.split(",")
            for one in as_list(self.parameters[name]):
                if not is_allowed(described, str(one)):
                    raise ValueError(f"CloudFormation would refuse {name}={value}: {described}")
        self.conditions = {}
        # A condition comes after those that it names.
        for name, one in source["Conditions"].items():
            self.conditions[name] = self.is_true(one)
        for name, rule in source.get("Rules", {}).items():
            if self.is_true(rule["RuleCondition"]) and not all(self.is_true(one["Assert"]) for one in rule["Assertions"]):
                raise ValueError(f"CloudFormation would refuse these parameters by the rule {name}")
        self.binaries = {}
        for name, resource in source["Resources"].items():
            if resource["Type"] == "AWS::Serverless::Function":
                self.binaries[name] = resource["Metadata"]["BuildProperties"]["Binary"]
                # Packaging replaces the folder by an object in S3.
                resource["Properties"]["CodeUri"] = "s3://bucket/key"
            if resource["Type"] == "AWS::Serverless::StateMachine":
                resource["Properties"]["DefinitionUri"] = "s3://bucket/key"
        managed_policies = mock.Mock()
        managed_policies.load.return_value = {}
        resources = transform(source, dict(self.parameters), managed_policies)["Resources"]
        created = {name: one for name, one in resources.items() if self.conditions.get(one.get("Condition"), True)}
        self.resources = self.decided(created)

    def is_true(self, condition):
        """Whether a condition of the template holds."""
        ((how, what),) = condition.items()
        if how == "Fn::Equals":
            return self.resolve(what[0]) == self.resolve(what[1])
        if how == "Fn::Not":
            return not self.is_true(what[0])
        if how == "Fn::And":
            return all(self.is_true(one) for one in what)
        if how == "Fn::Or":
            return any(self.is_true(one) for one in what)
        if how == "Condition":
            return self.conditions[what]
        raise ValueError(f"{condition} cannot be decided here")

    def decided(self, value):
        """The same without Fn::If, and without what becomes nothing."""
        if isinstance(value, list):
            return [one for one in map(self.decided, value) if one != NOTHING]
        if not isinstance(value, dict):
            return value
        if set(value) == {"Fn::If"}:
            condition, if_true, if_false = value["Fn::If"]
            return self.decided(if_true if self.conditions[condition] else if_false)
        decided = {key: self.decided(one) for key, one in value.items()}
        return {key: one for key, one in decided.items() if one != NOTHING}

    def with_values(self, value):
        """The same, with the value of each parameter in the place of its name."""
        if isinstance(value, list):
            return [self.with_values(one) for one in value]
        if isinstance(value, str):
            return re.sub(r"\$\{(\w+)\}", lambda found: str(self.parameters.get(found[1], found[0])), value)
        if not isinstance(value, dict):
            return value
        if set(value) == {"Ref"} and value["Ref"] in self.parameters:
            return self.parameters[value["Ref"]]
        return {name: self.with_values(one) for name, one in value.items()}

    def of_type(self, kind):
        return {name: one["Properties"] for name, one in self.resources.items() if one["Type"] == kind}

    def mappings(self):
        """What Lambda delivers to functions: the mappings of queues, and those of streams of tables."""
        queues, streams = [], []
        for mapping in self.of_type("AWS::Lambda::EventSourceMapping").values():
            source = mapping["EventSourceArn"].get("Fn::GetAtt", [None])[0]
            (queues if source in self.of_type("AWS::SQS::Queue") else streams).append(mapping)
        return queues, streams

    def role_of(self, name):
        """The properties of the own role of a function or a state machine, which the translator names after it."""
        return self.of_type("AWS::IAM::Role")[f"{name}Role"]

    def resolve(self, value):
        """The text that a reference would become."""
        if isinstance(value, list):
            return [self.resolve(one) for one in value]
        if not isinstance(value, dict):
            return value
        if len(value) != 1 or not (set(value) <= {"Ref"} or next(iter(value)).startswith("Fn::")):
            return {name: self.resolve(one) for name, one in value.items()}
        ((how, what),) = value.items()
        if how == "Ref":
            return self.name(what)
        if how == "Fn::GetAtt":
            return self.attribute(*(what.split(".", 1) if isinstance(what, str) else what))
        if how == "Fn::Join":
            return what[0].join(str(part) for part in self.resolve(what[1]))
        if how == "Fn::Split":
            return self.resolve(what[1]).split(what[0])
        if how == "Fn::Sub" and isinstance(what, str):
            return re.sub(r"\$\{([^}]+)\}", lambda found: str(self.variable(found[1])), what)
        if how == "Fn::Sub":
            text, own = what
            known = {name: str(self.resolve(self.decided(one))) for name, one in own.items()}
            return re.sub(r"\$\{([^}]+)\}", lambda found: known.get(found[1]) or str(self.variable(found[1])), text)
        raise ValueError(f"{value} cannot be resolved here")

    def variable(self, name):
        return self.attribute(*name.split(".", 1)) if "." in name else self.name(name)

    def name(self, name):
        pseudo = {"AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::StackName": "stack", "AWS::NoValue": None}
        if name in pseudo:
            return pseudo[name]
        if name in self.parameters:
            return self.parameters[name]
        if self.resources[name]["Type"] == "AWS::StepFunctions::StateMachine":
            return f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:{name}"
        properties = self.resources[name].get("Properties", {})
        return self.resolve(properties.get("TableName", name))

    def attribute(self, name, attribute):
        kind = self.resources[name]["Type"]
        if attribute not in ENDS or kind not in SERVICES:
            raise ValueError(f"{attribute} of {name} cannot be resolved here")
        return "arn:aws:" + SERVICES[kind].format(REGION, ACCOUNT, self.name(name)) + ENDS[attribute]


def is_allowed(described, value):
    """Whether CloudFormation would take this value of a parameter."""
    if described["Type"] == "Number":
        if not re.fullmatch(r"\d+", value):
            return False
        low, high = described.get("MinValue", 0), described.get("MaxValue", int(value))
        return low <= int(value) <= high and int(value) in described.get("AllowedValues", [int(value)])
    return (
        value in described.get("AllowedValues", [value])
        and described.get("MinLength", 0) <= len(value) <= described.get("MaxLength", len(value))
        and bool(re.fullmatch(described.get("AllowedPattern", ".*"), value, re.DOTALL))
    )


def as_list(value):
    return value if isinstance(value, list) else [value]


def grants(role):
    """Every (action, resource, condition) of a role's own policies, apart from its managed ones."""
    for policy in role.get("Policies", []):
        for statement in as_list(policy["PolicyDocument"]["Statement"]):
            # Whoever reads the list need not know of denials, while there are none.
            assert statement["Effect"] == "Allow", statement
            assert set(statement) <= {"Sid", "Effect", "Action", "Resource", "Condition"}, statement
            for action in as_list(statement["Action"]):
                for resource in as_list(statement["Resource"]):
                    yield action, resource, statement.get("Condition")


def allows(expansion, name, service=""):
    """What the role of a function or a state machine allows of a service, or of all."""
    return [
        {"action": action, "resource": expansion.resolve(resource), "condition": expansion.resolve(condition)}
        for action, resource, condition in grants(expansion.role_of(name))
        if action.startswith(service)
    ]


def function(expansion, name):
    properties = expansion.of_type("AWS::Lambda::Function")[name]
    variables = properties.get("Environment", {}).get("Variables", {})
    return {
        "timeoutSeconds": properties["Timeout"],
        "memoryMb": properties["MemorySize"],
        "environment": {key: str(expansion.resolve(value)) for key, value in variables.items()},
        "allows": allows(expansion, name),
    }


def queue(expansion, mapping):
    """A queue, as the mapping that delivers its messages to a function sees it."""
    name = mapping["EventSourceArn"]["Fn::GetAtt"][0]
    properties = expansion.of_type("AWS::SQS::Queue")[name]
    return {
        "arn": expansion.resolve(mapping["EventSourceArn"]),
        "function": expansion.binaries[mapping["FunctionName"]["Ref"]],
        "visibilityTimeoutSeconds": properties["VisibilityTimeout"],
        "maxReceiveCount": properties["RedrivePolicy"]["maxReceiveCount"],
        "batchSize": mapping["BatchSize"],
        "reportsBatchItemFailures": "ReportBatchItemFailures" in mapping.get("FunctionResponseTypes", []),
    }


def table(expansion, name, properties):
    return {"TableName": expansion.name(name)} | {key: properties[key] for key in CREATE_TABLE if key in properties}


def main(path, *parameters):
    expansion = Expansion(path, **dict(one.split("=", 1) for one in parameters))
    tables = expansion.of_type("AWS::DynamoDB::Table").items()
    created = {name: binary for name, binary in expansion.binaries.items() if name in expansion.resources}
    expanded = {
        "functions": {binary: function(expansion, name) for name, binary in created.items()},
        "stateMachines": {
            name: allows(expansion, name, "dynamodb:") for name in expansion.of_type("AWS::StepFunctions::StateMachine")
        },
        "tables": [table(expansion, name, properties) for name, properties in tables],
        "queues": [queue(expansion, one) for one in expansion.mappings()[0]],
    }
    json.dump(expanded, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
