"""One lock client with the settings of the protocol's "open", and the locks that it holds."""

import datetime

import boto3
from botocore.config import Config
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLock, DynamoDBLockClient, DynamoDBLockError

# The library always waits. With this shortest time it tries once.
ONE_TRY = datetime.timedelta(microseconds=1)
# The library always renews in the background. This period means never.
NEVER = datetime.timedelta(days=1)
SORT_KEY = "-"


class Refused(Exception):
    def __init__(self, why, error):
        super().__init__(str(error))
        self.why = why


def millis(number):
    return datetime.timedelta(milliseconds=number)


class LockClient:
    def __init__(self, settings):
        self.settings = settings
        self.held = {}
        lease, renew = settings["leaseMillis"], settings.get("renewMillis", 0)
        dynamodb = boto3.session.Session().resource(
            "dynamodb",
            endpoint_url=settings["endpoint"],
            region_name="us-east-1",
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=Config(max_pool_connections=4),
        )
        self.locks = DynamoDBLockClient(
            dynamodb,
            table_name=settings["table"],
            owner_name=settings["owner"],
            heartbeat_period=millis(renew) if renew else NEVER,
            safe_period=millis(lease * 3 // 4),
            lease_duration=millis(lease),
        )

    def another(self, contender):
        """Returns a client with the same settings and another owner."""
        return LockClient({**self.settings, "owner": f"{self.settings['owner']}-{contender}"})

    def acquire(self, request):
        wait = request.get("waitMillis", 0)
        try:
            lock = self.locks.acquire_lock(
                request["key"],
                retry_period=millis(request.get("pollMillis", 1000)),
                retry_timeout=millis(wait) if wait else ONE_TRY,
                additional_attributes=request.get("attributes"),
            )
        except DynamoDBLockError as error:
            raise Refused("held" if error.code == DynamoDBLockError.ACQUIRE_TIMEOUT else "failed", error) from error
        self.held[request["key"]] = lock
        return told(lock)

    def renew(self, request):
        lock = self.held[request["key"]]
        # There is no public function to renew.
        self.locks._send_heartbeat(lock)
        if lock.status != DynamoDBLock.LOCKED:
            raise Refused("lost", lock.status)
        return told(lock)

    def release(self, request):
        """The library always deletes the row."""
        try:
            self.locks.release_lock(self.held.pop(request["key"]), best_effort=False)
        except DynamoDBLockError as error:
            raise Refused("lost" if error.code == DynamoDBLockError.LOCK_STOLEN else "failed", error) from error
        return {}

    def read(self, request):
        # There is no public function to read a lock without acquiring it.
        lock = self.locks._get_lock_from_dynamodb(request["key"], SORT_KEY)
        return told(lock) if lock else {}


def told(lock):
    return {
        "lock": {
            "owner": lock.owner_name,
            "version": lock.record_version_number,
            "leaseMillis": round(lock.lease_duration * 1000),
            "attributes": {name: str(value) for name, value in lock.additional_attributes.items()},
        }
    }
