#!/usr/bin/env python3
"""Fails when a page tells again what has its place on another one, when a block of JSON, Python or shell does not
parse, when a clean-up is promised without its condition, or when the README is too long for one sitting.

Run it from the repository's root. A table is recognised by its head; each may stand on one page only. So may each row
of any table, whatever its head.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

README_LINES = 250
# Heads of unlike tables can be equal, and are shorter.
SHORT_ROW = 40

# What may stand once, and where: a pattern for a table's head.
TABLES = {
    "IAM actions by method": (r"^\| method \|.*actions", "docs/settings.md"),
    "IAM actions by function": (r"^\| function \| actions", "docs/settings.md"),
    "cost of operations": (r"^\| operation \| requests \| WRU", "docs/cost.md"),
    "cost of an execution": (r"^\| *\| transitions \| invocations", "docs/cost.md"),
    "kinds of errors": (r"^\| `ErrorKind` \| `errorType`", "docs/errors.md"),
    "settings of the client": (r"^\| setting \| default \|", "docs/settings.md"),
    "variables of the functions": (r"^\| variable \|.*default", "docs/settings.md"),
}


def blocks_that_do_not_parse(page):
    """Blocks of JSON, Python and shell, which somebody will copy. Rust is compiled elsewhere."""
    for block in re.finditer(r"^( *)```(json|python|sh)\n(.*?)^ *```$", Path(page).read_text(), re.M | re.S):
        language, code = block[2], block[3]
        try:
            if language == "json":
                json.loads(code)
            elif language == "python":
                compile(code, page, "exec")
            else:
                subprocess.run(["bash", "-n"], input=code, check=True, capture_output=True, text=True)
        except (ValueError, SyntaxError, subprocess.CalledProcessError) as error:
            line = block.string[: block.start()].count("\n") + 1
            yield f"{page}, line {line}: {getattr(error, 'stderr', error)}"


# lock-cleaner runs after the executions of the samples, and of what a parameter names.
CLEANS = re.compile(r"lock-cleaner`?(?:\]\(\S+\))?\s+(?:sees|releases|frees|does|has\s+to\s+release)\b|EventBridge\s+reports|by\s+itself")
SAYS_WHEN = re.compile(r"Cleans\w+|#lock-cleaner\)|#the-end-of-a-durable-execution\)|#copy-a-state-machine\)")
COPY = ("docs/step-functions.md", r"^\| [^|]+\| .*`CleansExecutionsOf`")


def clean_ups_without_condition(page):
    """Promises of a clean-up that neither name the parameter which it needs nor lead to where that is said."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[*|] )", Path(page).read_text()):
        if "lock-cleaner" in paragraph and CLEANS.search(paragraph) and not SAYS_WHEN.search(paragraph):
            yield f"{page}: lock-cleaner runs only after what CleansExecutionsOf names. Say so, or link to it: {paragraph.strip()[:120]}"


def main():
    pages = subprocess.run(["git", "ls-files", "*.md", "src/*.rs"], check=True, capture_output=True, text=True)
    pages = [page for page in pages.stdout.split() if Path(page).exists()]
    found = []
    for name, (head, place) in TABLES.items():
        holders = [
            page
            for page in pages
            if any(re.search(head, line.removeprefix("//! ")) for line in Path(page).read_text().splitlines())
        ]
        if holders != [place]:
            found.append(f"the table with the {name} belongs into {place} alone, and stands in: {holders or 'no page'}")
    holders_of = {}
    for page in (page for page in pages if page.endswith(".md")):
        for line in Path(page).read_text().splitlines():
            if line.startswith("|") and len(line) > SHORT_ROW and re.search(r"\w", line):
                holders_of.setdefault(line, {})[page] = True
        found.extend(blocks_that_do_not_parse(page))
        found.extend(clean_ups_without_condition(page))
    if not re.search(COPY[1], Path(COPY[0]).read_text(), re.M):
        found.append(f"{COPY[0]}: the table of what to change in a copy does not name `CleansExecutionsOf`")
    for line, holders in holders_of.items():
        if len(holders) > 1:
            found.append(f"{' and '.join(holders)} have the same row: {line[:80]}")
    lines = len(Path("README.md").read_text().splitlines())
    if lines > README_LINES:
        found.append(f"README.md has {lines} lines, and at most {README_LINES} are one sitting")
    for finding in found:
        print(f"error: {finding}", file=sys.stderr)
    if not found:
        print(f"{len(TABLES)} tables, each on one page; README.md has {lines} lines")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
