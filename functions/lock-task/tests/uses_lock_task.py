"""Uses `lock_task.py` as a program would. Fails with the first thing that is not as the page says."""

import time

from lock_task import LockError, LockTask


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
