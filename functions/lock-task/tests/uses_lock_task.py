"""Uses `lock_task.py` as a program would. Fails with the first thing that is not as the page says."""

import threading
import time

import boto3
from botocore.exceptions import ClientError, ReadTimeoutError

from lock_task import LockError, LockTask


class LosesAnswers:
    """A client whose requests arrive. Instead of the next answers it raises `errors`."""

    def __init__(self):
        self.client = boto3.client("lambda")
        self.errors = []

    def invoke(self, **request):
        answer = self.client.invoke(**request)
        if self.errors:
            raise self.errors.pop(0)
        return answer


def refusal(status, code):
    """What boto3 raises when Lambda itself has refused a request."""
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Invoke")


def error_type_of(call):
    """The `error_type` that this call raises."""
    try:
        call()
    except LockError as error:
        return error.error_type
    raise AssertionError("no LockError was raised")


locks = LockTask("lock-task")

# One holder at a time, and a lock that is free when its block ends.
with locks.acquire("customer-7", lease_seconds=60) as first:
    token = first.fencing_token
    assert error_type_of(lambda: locks.acquire("customer-7")) == "LockHeld"
    first.renew()
    assert first.fencing_token == token, "a renewal keeps the token"
second = locks.acquire("customer-7")
assert second.fencing_token > token
assert second.release() is True

# A waiting caller gets the lock of a holder that never releases it, once its lease is over.
dead = locks.acquire("customer-8", lease_seconds=1)
started = time.monotonic()
heir = locks.acquire("customer-8", wait_seconds=20)
assert time.monotonic() - started >= 1, "not before the lease is over"
assert heir.fencing_token > dead.fencing_token

# Who lost the lock is told so, and ends nobody else's.
assert error_type_of(dead.renew) == "LockLost"
assert dead.release() is False
assert error_type_of(lambda: dead.__exit__(None)) == "LockLost"
assert heir.release() is True

# What lock-task refuses is not asked again.
assert error_type_of(lambda: locks.acquire("")) == "InvalidRequest"
assert error_type_of(lambda: locks.acquire("customer-7", sort_key="a")) == "InvalidRequest", "this table has no sort key"

# A request whose answer was lost is sent again, and gets the lock that the first one acquired.
no_answer = ReadTimeoutError(endpoint_url="https://lambda")
unlucky = LosesAnswers()
unlucky.errors = [no_answer, refusal(429, "TooManyRequestsException")]
with LockTask("lock-task", unlucky).acquire("customer-9") as lock:
    unlucky.errors = [no_answer]
    lock.renew()
    unlucky.errors = [no_answer]
locks.acquire("customer-9").release()
unlucky.errors = 3 * [no_answer]
assert error_type_of(lambda: LockTask("lock-task", unlucky).acquire("customer-10", lease_seconds=1)) == "LockUnknown"

# A caller who may not invoke the function is told so at once, by the error of boto3.
unlucky.errors = [refusal(403, "AccessDeniedException")]
try:
    LockTask("lock-task", unlucky).acquire("customer-11")
except ClientError:
    assert unlucky.errors == []

# Who releases early is not told that the lock was lost, although somebody else has it by then.
with locks.acquire("customer-12") as early:
    early.release()
    later = locks.acquire("customer-12")
assert later.release() is True

# A lock that is free for a moment only is not missed by who waits for it.
short = locks.acquire("customer-13")
rivals = []


def release_and_come_again():
    time.sleep(1)
    short.release()
    time.sleep(2)
    rivals.append(error_type_of(lambda: LockTask("lock-task").acquire("customer-13")))


rival = threading.Thread(target=release_and_come_again)
rival.start()
waiter = locks.acquire("customer-13", wait_seconds=8)
rival.join()
assert rivals == ["LockHeld"]
assert waiter.release() is True

# The sentence of a refusal names the lock and its holder.
with locks.acquire("customer-14", program="nightly"):
    try:
        locks.acquire("customer-14")
    except LockError as error:
        assert str(error).startswith("LockHeld: the lock customer-14 is held by nightly/"), error
