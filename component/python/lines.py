"""One line of JSON per call, as the conformance scenarios ask: what both hosts in Python share."""

import json
import sys

from wit import Refused


def serve(answer):
    """Answers each line of standard input until it ends."""
    for line in sys.stdin:
        try:
            told = {"ok": answer(json.loads(line))}
        except Refused as refused:
            held = camel(refused.payload) if refused.kind == "held" else None
            told = {"error": {"kind": refused.kind, "message": str(refused), "held": held}}
        print(json.dumps(told), flush=True)


def camel(value):
    """Field names as JSON has them; bytes as lists of numbers."""
    if isinstance(value, dict):
        return {to_camel(name): camel(each) for name, each in value.items()}
    if isinstance(value, (list, bytes)):
        return [camel(each) for each in value]
    return value


def to_camel(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def token_to_json(token):
    """A token in one level: the scenarios' keys are plain."""
    return camel({**token, "key": token["key"]["key"]})


def token_from_json(token):
    return {
        "key": {"key": token["key"], "sort_key": None},
        "owner": token["owner"],
        "version": token["version"],
        "fencing_token": token["fencingToken"],
        "lease": token["lease"],
        "lease_ends_at": token["leaseEndsAt"],
        "workflow": token["workflow"],
    }


def observation_from_json(observation):
    return observation and {
        "version": observation["version"],
        "lease": observation["lease"],
        "unchanged_for": observation["unchangedFor"],
    }


def data_change(data):
    return "keep" if data is None else ("set", bytes(data))


def condition_check_to_json(check):
    """Attribute values as DynamoDB's JSON has them; a lock's condition has no bytes."""
    return {
        "tableName": check["table_name"],
        "key": {each["name"]: value_to_json(each["value"]) for each in check["key"]},
        "conditionExpression": check["condition_expression"],
        "expressionAttributeNames": {
            each["placeholder"]: each["name"] for each in check["expression_attribute_names"]
        },
        "expressionAttributeValues": {
            each["placeholder"]: value_to_json(each["value"]) for each in check["expression_attribute_values"]
        },
    }


def value_to_json(value):
    kind, payload = value
    return {kind.upper(): payload}
