"""The host of the component `client` for the conformance scenarios: client_host.py COMPONENT"""

import time

from lambda_lock_client import INTERFACE, Lock, Locks
from lines import Host, camel, data_change, observation_from_json, serve, saved_from_json


class ClientHost(Host):
    def open(self, table, endpoint, accessKeyId, owner, requestTimeout):
        self.granted = []
        credentials = {"access_key_id": accessKeyId, "secret_access_key": "secret", "session_token": None}
        self.locks = Locks(
            self.instance,
            table=table,
            region="local",
            endpoint=endpoint,
            credentials=credentials,
            owner=owner,
            request_timeout=requestTimeout,
        )

    def acquire(self, key, **options):
        return self.grant(self.locks.acquire(key, **acquiring(**options)))

    def tryAcquire(self, key, **options):
        tried = self.locks.try_acquire(key, **acquiring(**options))
        return {"granted": self.grant(tried)} if isinstance(tried, Lock) else {"held": camel(tried)}

    def reclaim(self, saved, lease):
        return self.grant(self.locks.reclaim(saved_from_json(saved), lease=lease))

    def renew(self, lock, lease, data):
        self.granted[lock].renew(lease=lease, data=data_change(data))

    def ensureRemaining(self, lock, step):
        self.granted[lock].ensure_remaining(step)

    def release(self, lock, deleteRow):
        return self.granted[lock].release(delete_row=deleteRow)

    def releaseSaved(self, saved, orLaterGrantOfOwner):
        return self.locks.release(saved_from_json(saved), or_later_grant_of_owner=orLaterGrantOfOwner)

    def pairs(self, key, count):
        started = time.perf_counter_ns()
        for _ in range(count):
            with self.locks.try_acquire(key, lease=60_000):
                pass
        return (time.perf_counter_ns() - started) / count


def acquiring(remaining, lease, owner, workflow, data, observation, reclaimOwn):
    budget = None if remaining is None else {"remaining": remaining, "reserve": 0}
    return {
        "budget": budget,
        "lease": lease,
        "owner": owner,
        "workflow": workflow,
        "data": data_change(data),
        "observation": observation_from_json(observation),
        "reclaim_own": reclaimOwn,
    }


if __name__ == "__main__":
    serve(ClientHost, INTERFACE)
