"""One line of JSON per call, as the conformance scenarios send it. Both Python hosts use this file."""

import json
import sys

from wit import Instance, Refused


class Host:
    """The calls that both hosts answer alike. Each host opens `locks` in its own way."""

    def __init__(self, component, interface):
        self.instance = Instance(component, interface)
        self.locks, self.granted = None, []

    def answer(self, ask):
        return getattr(self, ask.pop("ask"))(**ask)

    def resume(self, saved):
        return self.grant(self.locks.resume(saved_from_json(saved)))

    def remaining(self, lock):
        return self.granted[lock].remaining

    def toSaved(self, lock):
        return saved_to_json(self.granted[lock].to_saved())

    def conditionCheck(self, lock):
        return condition_check_to_json(self.granted[lock].condition_check())

    def releaseWorkflow(self, key, workflow):
        return self.locks.release_workflow(key, workflow)

    def peek(self, key):
        return camel(self.locks.peek(key))

    def grant(self, lock):
        self.granted.append(lock)
        return {
            "lock": len(self.granted) - 1,
            "owner": lock.owner,
            "fencingToken": lock.fencing_token,
            "leaseEndsAt": lock.lease_ends_at,
            "remaining": lock.remaining,
            "data": camel(lock.data),
        }


def serve(host, interface):
    """Answers each line of standard input until the input ends. The program's argument is the component."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(sys.modules["__main__"].__doc__)
    answer = host(sys.argv[1], interface).answer
    for line in sys.stdin:
        try:
            told = {"ok": answer(json.loads(line))}
        except Refused as refused:
            held = camel(refused.payload) if refused.kind == "held" else None
            blocked = [{"key": each["key"]["key"], "held": camel(each["held"])} for each in refused.blocked]
            told = {"error": {"kind": refused.kind, "message": str(refused), "held": held, "blocked": blocked}}
        print(json.dumps(told), flush=True)


def camel(value):
    """Converts field names to camel case, and bytes to lists of numbers."""
    if isinstance(value, dict):
        return {to_camel(name): camel(each) for name, each in value.items()}
    if isinstance(value, (list, bytes)):
        return [camel(each) for each in value]
    return value


def to_camel(name):
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def saved_to_json(saved):
    """A saved lock with its key as a string, because the scenarios use no sort keys."""
    return camel({**saved, "key": saved["key"]["key"]})


def saved_from_json(saved):
    return {
        "key": {"key": saved["key"], "sort_key": None},
        "owner": saved["owner"],
        "version": saved["version"],
        "fencing_token": saved["fencingToken"],
        "lease": saved["lease"],
        "lease_ends_at": saved["leaseEndsAt"],
        "workflow": saved["workflow"],
    }


def observation_from_json(observation):
    return observation and {
        "version": observation["version"],
        "lease": observation["lease"],
        "unchanged_for": observation["unchangedFor"],
    }


def blocked_from_json(blocked):
    held = blocked["held"]
    return {
        "key": {"key": blocked["key"], "sort_key": None},
        "held": {
            "holder": held["holder"],
            "lease_ends_at": held["leaseEndsAt"],
            "retry_after": held["retryAfter"],
            "waiting": held["waiting"],
            "freeze_reason": held.get("freezeReason"),
            "observation": observation_from_json(held["observation"]),
        },
    }


def data_change(data):
    return "keep" if data is None else ("set", bytes(data))


def condition_check_to_json(check):
    """Attribute values in DynamoDB's JSON. The condition of a lock has no bytes."""
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
