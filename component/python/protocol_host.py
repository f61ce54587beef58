"""The host of the component `protocol` on boto3, for the conformance scenarios: protocol_host.py COMPONENT"""

import time

import boto3
from lambda_lock_protocol import INTERFACE, Lock, Locks, config
from lines import Host, camel, data_change, observation_from_json, serve, saved_from_json


class ProtocolHost(Host):
    def open(self, table, endpoint, accessKeyId, owner, requestTimeout):
        self.granted, self.owner = [], owner
        dynamodb = boto3.client(
            "dynamodb",
            endpoint_url=endpoint,
            region_name="local",
            aws_access_key_id=accessKeyId,
            aws_secret_access_key="secret",
            config=config(requestTimeout),
        )
        self.locks = Locks(self.instance, dynamodb, table=table, request_timeout=requestTimeout)

    def acquire(self, **options):
        wanted = self.wanted(**options)
        return self.grant(self.locks.acquire(wait=options["remaining"] or 0, **wanted))

    def tryAcquire(self, **options):
        tried = self.locks.try_acquire(**self.wanted(**options))
        return {"granted": self.grant(tried)} if isinstance(tried, Lock) else {"held": camel(tried)}

    def reclaim(self, saved, lease):
        saved = saved_from_json(saved)
        return self.grant(self.locks.acquire("", owner="", lease=lease, reclaim=("only", saved)))

    def renew(self, lock, lease, data):
        self.locks.renew(self.granted[lock], lease=lease, data=data_change(data))

    def release(self, lock, deleteRow):
        return self.locks.release(self.granted[lock], delete_row=deleteRow)

    def releaseSaved(self, saved, orLaterGrantOfOwner):
        lock = self.locks.read(saved_from_json(saved))
        return self.locks.release(lock, or_later_grant_of_owner=orLaterGrantOfOwner)

    def pairs(self, key, count):
        started = time.perf_counter_ns()
        for _ in range(count):
            lock = self.locks.acquire(key, owner=self.owner, lease=60_000)
            self.locks.release(lock)
            lock.drop()
        return (time.perf_counter_ns() - started) / count

    def wanted(self, key, remaining, lease, owner, workflow, data, observation, reclaimOwn, queueing):
        return {
            "key": key,
            "lease": self.locks.lease_covering(remaining) if lease is None else lease,
            "owner": self.owner if owner is None else owner,
            "workflow": workflow,
            "data": data_change(data),
            "observation": observation_from_json(observation),
            "reclaim": "same-owner" if reclaimOwn else "nobody",
            "queueing": queueing,
        }


if __name__ == "__main__":
    serve(ProtocolHost, INTERFACE)
