"""The parts of a held lock that both worlds share."""

from wit import Resource

KEEP = "keep"


class HeldLock(Resource):
    """A held lock. Dropping it does not release it."""

    name = "lock"

    @property
    def fencing_token(self):
        return self.call("fencing-token")

    @property
    def owner(self):
        return self.call("owner")

    @property
    def lease_ends_at(self):
        return self.call("lease-ends-at")

    def to_saved(self):
        return self.call("to-saved")

    def condition_check(self):
        return self.call("condition-check")


def lock_key(key):
    """A key as a string, or as a pair of partition key and sort key."""
    key, sort_key = key if isinstance(key, tuple) else (key, None)
    return {"key": key, "sort_key": sort_key}


def releasing(options):
    return {"data": KEEP, "delete_row": False, "or_later_grant_of_owner": False, **options}
