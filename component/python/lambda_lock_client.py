"""The lock from Python, through the component `client`, which sends its requests to DynamoDB itself.

    locks = Locks("lambda_lock_client.wasm", table="locks", region="eu-central-1", credentials={
        "access_key_id": "…", "secret_access_key": "…", "session_token": None})
    with locks.acquire("customer-7", budget={"remaining": 25_000}) as lock:
        reserve()
        lock.renew()
        charge(lock.fencing_token)

Times are in milliseconds. A failure of the lock is raised as `Refused`, with a `kind` such as "held" or "lost".
"""

from lock import KEEP, HeldLock, lock_key, releasing
from wit import Instance, Refused, Resource

INTERFACE = "lambda-lock:lock/locks@0.1.0"


class Locks(Resource):
    """Locks in one table."""

    name = "client"

    def __init__(self, component, **settings):
        instance = component if isinstance(component, Instance) else Instance(component, INTERFACE)
        super().__init__(instance, instance.call("[static]client.open", settings))

    def acquire(self, key, **options):
        """Waits for the lock for the budget less its reserve."""
        return Lock(self.instance, self.call("acquire", lock_key(key), acquiring(options)))

    def try_acquire(self, key, **options):
        """Tries once. Returns a `Lock`, or a dict that names the holder."""
        case, payload = self.call("try-acquire", lock_key(key), acquiring(options))
        return Lock(self.instance, payload) if case == "granted" else payload

    def resume(self, saved, **options):
        return Lock(self.instance, self.call("resume", saved, {"data": KEEP, **options}))

    def reclaim(self, saved, **options):
        return Lock(self.instance, self.call("reclaim", saved, acquiring(options)))

    def release(self, saved, **options):
        return self.call("release", saved, releasing(options))

    def release_workflow(self, key, workflow):
        return self.call("release-workflow", lock_key(key), workflow)

    def peek(self, key):
        return self.call("peek", lock_key(key))

    def acquire_all(self, keys, in_order=False, **options):
        """Waits for all of several locks. `Refused.blocked` has those that others hold."""
        keys = [lock_key(key) for key in keys]
        return LockSet(self.instance, self.call("acquire-all", keys, in_order, acquiring_several(options)))

    def resume_all(self, saved, budget=None, lease=None):
        return LockSet(self.instance, self.call("resume-all", saved, budget, lease))

    def release_all(self, saved):
        """Returns the keys that were gone."""
        return self.call("release-all", saved)

    def acquire_permit(self, name, permits, **options):
        """Waits for one of the places `name/0` to `name/{permits - 1}`. Returns its number and its `Lock`."""
        permit = self.call("acquire-permit", lock_key(name), permits, acquiring_several(options))
        return permit["place"], Lock(self.instance, permit["lock"])


class Releasing:
    """It is released at the end of a `with`."""

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        try:
            self.release()
        except Refused:
            # The failure of the work is more important than that of the release, because the lease frees the lock.
            if failure is None:
                raise
        finally:
            self.drop()


class Lock(Releasing, HeldLock):
    """A held lock. It is released at the end of a `with`."""

    @property
    def data(self):
        return self.call("data")

    @property
    def remaining(self):
        return self.call("remaining")

    def ensure_remaining(self, step):
        self.call("ensure-remaining", step)

    def renew(self, **options):
        self.call("renew", {"data": KEEP, **options})

    def release(self, **options):
        return self.call("release", releasing(options))


class LockSet(Releasing, Resource):
    """Several held locks. They are released at the end of a `with`."""

    name = "lock-set"

    @property
    def keys(self):
        return self.call("keys")

    @property
    def fencing_token(self):
        """The token of all of them. None if each has its own, as after `in_order`: see `to_saved`."""
        return self.call("fencing-token")

    @property
    def remaining(self):
        return self.call("remaining")

    def ensure_remaining(self, step):
        self.call("ensure-remaining", step)

    def renew(self):
        self.call("renew")

    def condition_checks(self):
        return self.call("condition-checks")

    def to_saved(self):
        return self.call("to-saved")

    def save(self):
        return self.call("save")

    def release(self):
        """Returns the keys that were gone."""
        return self.call("release")


def acquiring(options):
    return {"data": KEEP, "reclaim_own": False, **options}


def acquiring_several(options):
    return {"seen": [], "reclaim_own": False, **options}
