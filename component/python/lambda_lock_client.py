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


class Lock(HeldLock):
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


def acquiring(options):
    return {"data": KEEP, "reclaim_own": False, **options}
