"""The host of the component `client` for the conformance scenarios: client_host.py COMPONENT"""

import time

from lambda_lock_client import INTERFACE, Lock, Locks
from lines import (
    Host,
    blocked_from_json,
    camel,
    condition_check_to_json,
    data_change,
    observation_from_json,
    saved_from_json,
    saved_to_json,
    serve,
)


class ClientHost(Host):
    def open(self, table, endpoint, accessKeyId, owner, requestTimeout):
        self.granted, self.sets = [], []
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

    def acquireAll(self, keys, inOrder, several):
        return self.grant_all(self.locks.acquire_all(keys, in_order=inOrder, **acquiring_several(**several)))

    def resumeAll(self, saved, lease):
        return self.grant_all(self.locks.resume_all([saved_from_json(each) for each in saved], lease=lease))

    def renewAll(self, set):
        self.sets[set].renew()

    def remainingOfAll(self, set):
        return self.sets[set].remaining

    def ensureRemainingOfAll(self, set, step):
        self.sets[set].ensure_remaining(step)

    def conditionChecks(self, set):
        return [condition_check_to_json(each) for each in self.sets[set].condition_checks()]

    def savedAll(self, set, keep):
        saved = self.sets[set].to_saved() if keep else self.sets[set].save()
        return [saved_to_json(each) for each in saved]

    def releaseAll(self, set):
        return [key["key"] for key in self.sets[set].release()]

    def releaseAllSaved(self, saved):
        return [key["key"] for key in self.locks.release_all([saved_from_json(each) for each in saved])]

    def acquirePermit(self, name, permits, several):
        place, lock = self.locks.acquire_permit(name, permits, **acquiring_several(**several))
        return {"place": place, "lock": self.grant(lock)}

    def grant_all(self, locks):
        self.sets.append(locks)
        return {
            "set": len(self.sets) - 1,
            "keys": [key["key"] for key in locks.keys],
            "fencingToken": locks.fencing_token,
            "remaining": locks.remaining,
        }

    def pairs(self, key, count):
        started = time.perf_counter_ns()
        for _ in range(count):
            with self.locks.try_acquire(key, lease=60_000):
                pass
        return (time.perf_counter_ns() - started) / count


def acquiring(remaining, lease, owner, workflow, data, observation, reclaimOwn, queueing):
    budget = None if remaining is None else {"remaining": remaining, "reserve": 0}
    return {
        "budget": budget,
        "lease": lease,
        "owner": owner,
        "workflow": workflow,
        "data": data_change(data),
        "observation": observation_from_json(observation),
        "reclaim_own": reclaimOwn,
        "queueing": queueing,
    }


def acquiring_several(remaining, reserve, lease, owner, workflow, seen, reclaimOwn):
    return {
        "budget": {"remaining": remaining, "reserve": reserve},
        "lease": lease,
        "owner": owner,
        "workflow": workflow,
        "seen": [blocked_from_json(each) for each in seen],
        "reclaim_own": reclaimOwn,
    }


if __name__ == "__main__":
    serve(ClientHost, INTERFACE)
