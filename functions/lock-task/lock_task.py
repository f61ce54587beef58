"""Locks for Python, by the function lock-task. Needs boto3."""

import json
import logging
import time
import uuid

import boto3
from botocore import exceptions

log = logging.getLogger(__name__)

# Errors after which the same request would fail again.
FINAL = ("LockLost", "InvalidRequest", "InvalidRecord", "LockTableError")

# How many seconds one call waits for another holder at most: less than the function's timeout, and than boto3's.
MAX_WAIT = 20
BETWEEN_CALLS = 0.2

# What boto3 raises when no answer arrived, also in the middle of an answer.
NO_ANSWER = (exceptions.ConnectionError, exceptions.HTTPClientError, exceptions.IncompleteReadError)


class LockError(Exception):
    """The call of lock-task failed. `error_type` is the name of the error, such as `LockLost`."""

    def __init__(self, error_type, message):
        super().__init__(f"{error_type}: {message}")
        self.error_type = error_type


class LockTask:
    """Calls lock-task. `function_name` is the output `LockTaskName` of the stack."""

    def __init__(self, function_name, client=None):
        self.function_name = function_name
        self.client = client or boto3.client("lambda")

    def call(self, **request):
        """Sends one request. boto3 sends it again when Lambda is busy or does not answer, five times in all."""
        try:
            answer = self.client.invoke(FunctionName=self.function_name, Payload=json.dumps(request))
            payload = json.load(answer["Payload"])
        except NO_ANSWER as error:
            raise LockError("LockUnknown", f"no answer of lock-task: {error}") from error
        except exceptions.ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 429 or status >= 500:
                raise LockError("LockUnknown", f"Lambda did not run lock-task: {error}") from error
            raise  # such as a missing permission, or a wrong name of the function
        if "FunctionError" in answer:
            raise LockError(payload.get("errorType", "LockUnknown"), payload.get("errorMessage", "no message"))
        return payload

    def call_again(self, **request):
        """Sends a request up to three times while its outcome is unknown. All requests here allow that."""
        for attempt in (1, 2, 3):
            try:
                return self.call(**request)
            except LockError as error:
                if error.error_type in FINAL or attempt == 3:
                    raise
                log.warning("lock-task is called again: %s", error)
                time.sleep(attempt)

    def acquire(self, key, lease_seconds=60, wait_seconds=0, program="python", sort_key=None, permits=None):
        """Acquires the lock, or raises LockError with error_type `LockHeld` after `wait_seconds`.

        With `permits` it acquires one of so many places of the semaphore `key`.
        """
        wanted = {"key": key, "sortKey": sort_key, "permits": permits}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        return self.acquire_wanted(wanted, lease_seconds, wait_seconds, program)

    def acquire_all(self, keys, lease_seconds=60, wait_seconds=0, program="python"):
        """Acquires all of these locks or none. They are one Lock, with one fencing token."""
        return self.acquire_wanted({"keys": list(keys)}, lease_seconds, wait_seconds, program)

    def acquire_wanted(self, wanted, lease_seconds, wait_seconds, program):
        """Acquires what these fields of the request name."""
        request = {
            "action": "acquire",
            **wanted,
            "owner": f"{program}/{uuid.uuid4()}",  # one name for each holder, so `reclaim` is safe
            "reclaim": True,
            "leaseSeconds": lease_seconds,
            "whenHeld": "report",
        }
        end = time.monotonic() + wait_seconds
        while True:
            # The function looks several times a second, so a lock that is free for a moment is not missed.
            request["waitSeconds"] = max(0, min(end - time.monotonic(), MAX_WAIT))
            answer = self.call_again(**request)
            answered = time.monotonic()
            if answer["acquired"]:
                return Lock(self, answer["lock"], lease_seconds, answer.get("place"))
            pause = min(BETWEEN_CALLS, end - answered)
            if pause <= 0:
                raise LockError("LockHeld", held(wanted, answer))
            time.sleep(pause)
            # A holder whose row does not change for a whole lease is dead. Never report more time than has passed.
            request["observation"] = answer["observation"]
            request["waitedSeconds"] = time.monotonic() - answered


def held(wanted, report):
    """Who holds what these fields name, as a sentence."""
    holder, retry_after = report["holder"]["owner"], report["retryAfterSeconds"]
    if "keys" in wanted:
        what = f"of the locks {', '.join(map(str, wanted['keys']))} at least one is held, by {holder}"
    elif "permits" in wanted:
        what = f"all {wanted['permits']} places of {wanted['key']} are held, one of them by {holder}"
    else:
        what = f"the lock {wanted['key']} is held by {holder}"
    return f"{what}: retry in at most {retry_after} s"


class Lock:
    """A lock that this program holds. Use it in a `with` block, which releases it."""

    def __init__(self, functions, lock, lease_seconds, place=None):
        self.functions = functions
        self.lock = lock
        self.lease_seconds = lease_seconds
        self.place = place  # of a semaphore
        self.released = False

    @property
    def fencing_token(self):
        return self.lock["fencingToken"]

    def renew(self):
        """Starts the lease anew. Raises LockError with error_type `LockLost` when somebody else has the lock."""
        request = {"action": "renew", "lock": self.lock, "leaseSeconds": self.lease_seconds}
        self.lock = self.functions.call_again(**request)["lock"]

    def release(self):
        """Returns False when the lock was no longer held."""
        self.released = self.functions.call_again(action="release", lock=self.lock, reclaim=True)["released"]
        return self.released

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if self.released:
            return  # within the block
        try:
            held = self.release()
        except Exception:
            log.exception("the lock was not released, so it becomes free when its lease ends")
            return
        if not held:
            lost = LockError("LockLost", "the lock was lost before the work ended: check what the work wrote")
            if failed is None:
                raise lost
            log.warning("%s", lost)  # the error of the work goes on
