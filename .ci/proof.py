#!/usr/bin/env python3
"""The table of promises in proof/README.md, made of the record and of the known mistakes. Fails when the page shows another one.

    .ci/proof.py                    compares
    .ci/proof.py --write            writes the table into the page
    .ci/proof.py --record FILE      prints the table of another record, such as target/nightly/record.txt

A record has one part of `cargo sim --record`, and after it that of `cargo sim --crowd --record`, if there were crowds.
"""

import argparse
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "proof" / "README.md"
RECORD = ROOT / "proof" / "simulation" / "record.txt"
MISTAKES = ROOT / "proof" / "simulation" / "mistakes.md"
HEAD = "| promise | what a run checks at every step | how often it was tried | mistakes, and runs until they are noticed |"

# The promise, what is checked, what the record counts of it, and what mistakes.md calls it. `{…}` is a count of the record, and
# `{crowds: …}` one of the crowds.
ROWS = [
    (
        "P1: tokens grow",
        "each grant has a larger token than the one before; what checks tokens never applies an older write after a newer one",
        "{grants applied} grants; {effects applied by the fenced resource} writes applied and "
        "{stale effects refused by the fenced resource} stale ones refused",
        "P1",
    ),
    (
        "P2: one holder",
        "no two callers rely on one lock, and no two works of one lock run at an instant, by true time",
        "{guards that said mine} checks of a guard, {polls of works under a guard} steps of works",
        "P2",
    ),
    (
        "P3: no false loss",
        "no caller is told `Lost` while the row is its own, or waits for itself; what it may have got by a call that failed, it "
        "gives back",
        "{acquires refused because somebody else holds the lock} refusals, {locks reported lost} losses, "
        "{acquires of unknown outcome} acquires of unknown outcome",
        "P3",
    ),
    (
        "P4: the dead are replaced",
        "somebody who waits gets the lock of a dead holder within the bound, and every call returns in its time",
        "{dead holders replaced within the bound after the faults stopped} dead holders, {calls that ended} calls",
        "P4",
    ),
    (
        "P5: unknown is said",
        "a commit is applied once or not at all, and what is said of it is so; a release that is reported has freed the lock",
        "{transactions applied} commits, {transactions of unknown outcome} of unknown outcome; {releases applied} releases",
        "P5",
    ),
    (
        "P6: all or none",
        "a set is granted whole; its commit is applied under all of its locks or not at all",
        "{sets granted} sets, {sets of unknown outcome} of unknown outcome; {commits under several locks} commits under several "
        "locks",
        "in P1 and P2",
    ),
    (
        "P7: frozen",
        "nobody but its holder is granted a frozen lock, and nothing but a freeze or thaw changes that",
        "{locks frozen by an operator} locks frozen, {acquires refused because the lock is frozen} acquires refused",
        "frozen locks",
    ),
    (
        "P8: turns",
        "nobody passes those ahead in line before the time is over; tickets are served in order",
        "{tickets given to callers who wait in line} tickets and {grants in turn, by ticket} grants in turn; in the crowds "
        "{crowds: tickets given to callers who wait in line} and {crowds: grants in turn, by ticket}",
        "P8",
    ),
    (
        "at most N",
        "a call gets one place, and is told that all are taken only if each was held",
        "{places granted} places, {semaphores reported as full} refusals",
        "semaphores",
    ),
    (
        "idempotent work",
        "work whose result is stored is not done again, and its result stays",
        "{results of idempotent works stored} results stored, {results of idempotent works replayed} returned again",
        "idempotent work",
    ),
    (
        "the row",
        "each request keeps payload, attributes and TTL, and is one that DynamoDB accepts",
        "{requests that reached the table} requests",
        "every request",
    ),
    ("every call", "it ends, and nothing panics", "{calls that ended} calls", "every call"),
]


def counts_of(text):
    """The counts of one part of a record, by their names."""
    found = {}
    for line in text.splitlines():
        if count := re.match(r" *(\d+) +\d+  (.+)$", line):
            found[count[2]] = int(count[1])
    return found


def parts_of(record):
    """The parts of a record. Each begins with its seeds."""
    parts = re.split(r"^(?=seeds \d)", record.read_text(), flags=re.M)[1:]
    return [counts_of(part) for part in parts]


def rounded(count):
    if count >= 10_000_000:
        return f"{count / 1e6:,.0f} million"
    if count >= 1_000_000:
        return f"{count / 1e6:.1f} million"
    return f"{count:,}" if count < 10_000 else f"{round(count, -3):,}"


def noticed():
    """For each promise: after how many runs its mistakes are noticed with a probability of 95 %."""
    runs = {}
    for line in MISTAKES.read_text().splitlines()[2:]:
        _, _, seeds, _, of, *_ = [cell.strip() for cell in line.split("|")]
        if seeds.isdigit():
            runs.setdefault(of, []).append(int(seeds))
    return runs


def table(record):
    parts, runs = parts_of(record), noticed()
    if not parts:
        sys.exit(f"error: {record} is no record: cargo sim --record {record} writes one")

    def count(name):
        part = parts[-1] if name[1].startswith("crowds: ") else parts[0]
        label = name[1].removeprefix("crowds: ")
        if label not in part:
            sys.exit(f"error: {record} counts no {label!r}")
        return rounded(part[label])

    lines = [HEAD, "|---|---|---|---|"]
    for promise, checked, tried, of in ROWS:
        known = runs.pop(of, [])
        by = f"{len(known)}: {', '.join(f'{runs:,}' for runs in sorted({statistics.median_high(known), max(known)}))}" if known else of
        lines.append(f"| {promise} | {checked} | {re.sub(r'{(.+?)}', count, tried)} | {by} |")
    if runs:
        sys.exit(f"error: no row of .ci/proof.py is for the mistakes of: {', '.join(runs)}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into proof/README.md")
    parser.add_argument("--record", type=Path, metavar="FILE", help="print the table of this record")
    arguments = parser.parse_args()
    if arguments.record:
        print(table(arguments.record))
        return
    page, made = PAGE.read_text(), table(RECORD)
    start = page.find("| promise |")
    end = page.find("\n\n", start)
    if start < 0:
        sys.exit(f"error: {PAGE.relative_to(ROOT)} has no table of promises")
    if arguments.write:
        PAGE.write_text(page[:start] + made + page[end:])
    elif page[start:end] != made:
        sys.exit(f"error: the table in {PAGE.relative_to(ROOT)} is not that of the record: run .ci/proof.py --write")
    else:
        print(f"{len(ROWS)} rows of {PAGE.relative_to(ROOT)} are those of the record and of the known mistakes")


if __name__ == "__main__":
    main()
