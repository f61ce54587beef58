"""Do the templates make the same lock table? python deploy/template/tables.py TEMPLATE LOCK_TABLE

The table of lock-table.yaml has to be that of template.yaml. Only its name may be chosen, and it is always retained.
"""

import itertools
import sys

from expansion import Expansion


def main(path, of_table):
    found = []
    for protection, expires, stream in itertools.product(("true", "false"), repeat=3):
        parameters = {"TableDeletionProtection": protection, "TimeToLive": expires, "WakeByStream": stream}
        one, other = (Expansion(template, **parameters).resources["LockTable"]["Properties"] for template in (path, of_table))
        for name in sorted(set(one) | set(other) - {"TableName"}):
            if one.get(name) != other.get(name):
                found.append(f"{parameters}, {name}: {path} has {one.get(name)}, and {of_table} has {other.get(name)}")
    if Expansion(of_table).resources["LockTable"]["DeletionPolicy"] != "Retain":
        found.append(f"{of_table} deletes its table")
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print("the lock table of both templates is the same")


if __name__ == "__main__":
    main(*sys.argv[1:])
