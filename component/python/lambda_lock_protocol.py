"""The lock from Python on a DynamoDB client of your own, through the component `protocol`.

The component decides, and boto3 sends:

    dynamodb = boto3.client("dynamodb", config=config())
    locks = Locks("lambda_lock_protocol.wasm", dynamodb, table="locks")
    owner = f"statement/{uuid.uuid4()}"  # names this one holder
    lock = locks.acquire("customer-7", owner=owner, lease=20_000, wait=5_000)
    ...
    locks.renew(lock)
    locks.release(lock)

Times are in milliseconds. A failure of the lock is raised as `Refused`, with a `kind` such as "held" or "lost". Its
`__cause__` is the last exception of boto3: why the outcome is unknown. What boto3 never sent, because it has no credentials
for example, is raised as it is.
"""

import os
import threading
import time

from botocore.config import Config
from botocore.exceptions import ClientError
from lock import KEEP, HeldLock, lock_key, releasing
from wit import Instance, Refused, Resource

INTERFACE = "lambda-lock:lock/decisions@0.1.0"
KINDS = {"S": "s", "N": "n", "B": "b"}

# Whether this thread's request has been handed to the connection.
_request = threading.local()


def _note_sent(**_):
    _request.sent = True


def config(request_timeout=1_000):
    """A configuration for boto3: one attempt per request, because the decisions repeat requests themselves,
    and no waiting longer than a request's timeout."""
    seconds = request_timeout / 1000
    return Config(retries={"total_max_attempts": 1}, connect_timeout=seconds, read_timeout=seconds)


class Locks(Resource):
    """Locks in one table."""

    name = "table"

    def __init__(self, component, dynamodb, **settings):
        instance = component if isinstance(component, Instance) else Instance(component, INTERFACE)
        super().__init__(instance, instance.call("[static]table.open", settings))
        self.dynamodb = dynamodb
        dynamodb.meta.events.register("before-send.dynamodb", _note_sent, unique_id="lambda-lock-sent")

    def try_acquire(self, key, **wanted):
        """Tries once, or waits for the time in `wait`. Returns a `Lock`, or a dict that names the holder."""
        wanted = {"wait": 0, "data": KEEP, "reclaim": "nobody", **wanted, "key": lock_key(key)}
        case, payload = self._decided(self.call("acquire", wanted))
        if case == "held":
            return payload
        lock = Lock(self.instance, payload["lock"])
        lock.data = payload["data"]
        if payload["renew_first"]:
            self.renew(lock)
        return lock

    def acquire(self, key, **wanted):
        """Waits for the lock for the time in `wait`."""
        lock = self.try_acquire(key, **wanted)
        if isinstance(lock, Lock):
            return lock
        message = f"the lock {key} is held by {lock['holder']!r}"
        raise Refused({"kind": ("held", lock), "message": message})

    def read(self, saved):
        """Reads a saved lock. Its remaining lease counts as zero until a renewal succeeds. Release it, or `resume`
        it at once."""
        return Lock(self.instance, self.call("resume", saved, clocks()))

    def resume(self, saved, **options):
        lock = self.read(saved)
        self.renew(lock, **options)
        return lock

    def renew(self, lock, **options):
        self._decided(lock.call("renew", {"data": KEEP, **options}))

    def release(self, lock, **options):
        return self._decided(lock.call("release", releasing(options)))[1]

    def release_workflow(self, key, workflow):
        return self._decided(self.call("release-workflow", lock_key(key), workflow))[1]

    def peek(self, key):
        return self._decided(self.call("peek", lock_key(key)))[1]

    def lease_covering(self, remaining, grace=1_000):
        return self.call("lease-covering", remaining, grace)

    def _decided(self, handle):
        """The loop of every decision: step, send or wait, until the verdict."""
        decision = Decision(self.instance, handle)
        cause, unknown = None, False
        try:
            while (step := decision.call("step", clocks(), os.urandom(32))) != "done":
                case, payload = step
                if case == "wait":
                    time.sleep(payload / 1000)
                else:
                    answer, failed = self._send(payload["request"])
                    # An earlier request may have been applied, and only the decision knows what to say then.
                    if failed and not _request.sent and not unknown:
                        raise failed
                    cause = failed or cause
                    unknown = unknown or answer == "unknown"
                    decision.call("answered", clocks(), answer)
            return decision.call("verdict")
        except Refused as refused:
            raise refused from cause
        finally:
            decision.drop()

    def _send(self, request):
        """Sends one request. Returns what is known afterwards, and the exception if there was one."""
        read = request["operation"] == "get-item"
        _request.sent = False
        try:
            answer = getattr(self.dynamodb, request["operation"].replace("-", "_"))(**parameters(request))
        except ClientError as error:
            return refusal(error), error
        except Exception as error:
            # No usable response: the outcome is unknown.
            return "unknown", error
        if read:
            return ("found", attributes(answer.get("Item"))), None
        return ("applied", attributes(answer.get("Attributes", {}))), None


class Lock(HeldLock):
    """A held lock."""

    data = None

    @property
    def remaining(self):
        return self.call("remaining", clocks())


class Decision(Resource):
    name = "decision"


def clocks():
    """Reads both clocks, the monotonic clock first. Both are rounded down."""
    return {"monotonic": time.monotonic_ns() // 1_000_000, "wall": time.time_ns() // 1_000_000, "wall_is_right": True}


def parameters(request):
    """A request in the form of boto3."""
    given = {
        "TableName": request["table_name"],
        "Key": {each["name"]: to_boto(each["value"]) for each in request["key"]},
        "UpdateExpression": request["update_expression"],
        "ConditionExpression": request["condition_expression"],
        "ExpressionAttributeNames": {
            each["placeholder"]: each["name"] for each in request["expression_attribute_names"]
        },
        "ExpressionAttributeValues": {
            each["placeholder"]: to_boto(each["value"]) for each in request["expression_attribute_values"]
        },
        "ReturnValues": request["return_values"],
        "ReturnValuesOnConditionCheckFailure": request["return_values_on_condition_check_failure"],
        "ConsistentRead": request["consistent_read"],
    }
    return {name: value for name, value in given.items() if value}


def refusal(error):
    """The meaning of an error response from DynamoDB."""
    answer = error.response
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = answer.get("Error", {}).get("Code", "")
    if not 400 <= status < 500:
        return "unknown"
    if code == "ConditionalCheckFailedException":
        return "condition-failed", attributes(answer.get("Item"))
    return "failed", {"code": code, "message": answer["Error"].get("Message")}


def to_boto(value):
    kind, payload = value
    return {kind.upper(): payload}


def attributes(item):
    """An item of boto3 as a list of attributes, or `None` without an item."""
    if item is None:
        return None
    return [{"name": name, "value": from_boto(value)} for name, value in item.items()]


def from_boto(value):
    ((kind, payload),) = value.items()
    if kind in KINDS:
        return KINDS[kind], payload
    # For other types, a lock needs only the name of the type.
    return "other", kind
