"""Tasks that wait for a callback (`.waitForTaskToken`), and the calls that end their wait.

Sources are the page connect-to-resource of the guide https://docs.aws.amazon.com/step-functions/latest/dg/, and the
pages API_SendTaskSuccess, API_SendTaskFailure and API_SendTaskHeartbeat of
https://docs.aws.amazon.com/step-functions/latest/apireference/.
"""

import base64
import json
import threading
import uuid

from ministack.core.responses import error_response_json, json_response
from ministack.services import stepfunctions as sfn

# Bytes of what SendTaskSuccess may send.
MAX_OUTPUT = 262_144


class Callback:
    """The wait of one attempt of a task. It ends with the attempt, and once."""

    _given = {}

    def __init__(self, machine, runs):
        # It names the state machine, as the role of the sender allows to answer some of them. Nothing else reads it.
        text = json.dumps({"stateMachine": machine, "id": str(uuid.uuid4())})
        self.token = base64.b64encode(text.encode()).decode()
        self.outcome = None
        self._runs, self._answer, self._lock, self._is_open = runs, None, threading.Lock(), True
        Callback._given[self.token] = self

    def begin(self, answer):
        """Puts the outcome into this queue."""
        self._answer = answer

    def is_open(self):
        """Whether the attempt still waits. Its execution may have ended a moment ago."""
        return self._is_open and self._runs()

    def settle(self, outcome):
        """Ends the wait with a result or a Failure. Returns whether there was a wait to end."""
        with self._lock:
            if not self.is_open():
                return False
            self._is_open, self.outcome = False, outcome
            self._answer.put(outcome)
            return True

    def close(self):
        """Ends the wait without an outcome. Returns whether there was none."""
        with self._lock:
            was_open, self._is_open = self._is_open, False
            return was_open

    @classmethod
    def of(cls, token):
        """The wait with this token, or the response that there is none."""
        if not is_token(token):
            return None, error_response_json("InvalidToken", "the token is not one of a task", 400)
        if token not in cls._given:
            return None, error_response_json("TaskDoesNotExist", "no task was given this token", 400)
        return cls._given[token], None


def is_token(token):
    try:
        named = json.loads(base64.b64decode(token, validate=True))
        return isinstance(named["stateMachine"], str) and isinstance(named["id"], str)
    except (ValueError, TypeError, KeyError):
        return False


def no_json(word):
    """Python would read NaN and Infinity, which JSON does not have."""
    raise ValueError(word)


def succeed(request):
    output = request.get("output")
    try:
        result = json.loads(output, parse_constant=no_json)
    except (ValueError, TypeError):
        return error_response_json("InvalidOutput", "the output is not JSON", 400)
    if len(output.encode()) > MAX_OUTPUT:
        return error_response_json("ValidationException", f"the output has more than {MAX_OUTPUT} bytes", 400)
    return answer(request, lambda callback: callback.settle(result))


def fail(request):
    failure = sfn._ExecutionError(request.get("error") or "", request.get("cause") or "")
    return answer(request, lambda callback: callback.settle(failure))


def beat(request):
    """Says whether the task still waits. HeartbeatSeconds is not executed."""
    return answer(request, Callback.is_open)


def answer(request, reaches):
    callback, refusal = Callback.of(request.get("taskToken"))
    if refusal:
        return refusal
    if reaches(callback):
        return json_response({})
    return error_response_json("TaskTimedOut", "the task with this token has ended or timed out", 400)


ACTIONS = {"SendTaskSuccess": succeed, "SendTaskFailure": fail, "SendTaskHeartbeat": beat}
