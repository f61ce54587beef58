#!/usr/bin/env python3
"""Fails when a page names what the code does not have, or leaves out what the code has.

Run it from the repository's root. Tables of the pages are compared with the code: names, and those defaults that both
write in one way. Any other name in `backticks` has to occur somewhere in the code.
"""

import fnmatch
import math
import os
import re
import subprocess
import sys
from pathlib import Path

# Names that are not ours: of AWS, of other libraries, and of what the reader writes or puts in.
NOT_OURS = """
    CARGO_BIN_EXE_mine CLIENT_FOUND_ROWS CLOSE ExecutionsFailed ExecutionsTimedOut FmtSpan Invocations KeyError
    IdempotencyAlreadyInProgressError LeadingKeys Match OutputPath Parallel customerId expires_after_seconds expiry_time
    FunctionName HeartbeatSeconds ItemReader ResultWriter StaticReplayClient Timestamp ignore_configured_endpoint_urls mfa_serial
    get_remaining_time_in_millis makeIdempotent payload_validation_jmespath requestPayload startExecution
    waitForTaskToken with_span_events
    ATTRIBUTE YourError f5a3c1e pool refund CALL PROCESS ROLLBACK_COMPLETE ROLLBACK_FAILED SHELL TableName sqlite3 sqlx sudo systemd hidepid
""".split()

# Methods of other libraries, of Python, and of the component.
METHODS_NOT_OURS = "exit fence get_remaining_time_in_millis map_err signal with_span_events".split()

found = []


def read(path):
    return Path(path).read_text()


def prose_and_blocks(page):
    """A page without its blocks of code, and these."""
    parts = re.split(r"^ *```.*$", read(page), flags=re.M)
    return "".join(parts[::2]), "".join(parts[1::2])


def ticked(text):
    return re.findall(r"`([^`\n]+)`", text)


def same(what, on_the_page, in_the_code):
    """Both should have the same names, or names with what is said of them."""
    on_the_page, in_the_code = set(on_the_page), set(in_the_code)
    found.extend(f"{what}: the page has {name}, and the code does not" for name in on_the_page - in_the_code)
    found.extend(f"{what}: the code has {name}, and the page does not" for name in in_the_code - on_the_page)


def table(page, heading, head):
    """The rows of the first table with this head under this heading, each a list of cells."""
    lines = read(page).partition(f"\n{heading}\n")[2].splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(head)), None)
    if start is None:
        found.append(f"{page} has no table under {heading} that begins with {head}")
        return []
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def names(rows, column=0):
    """What is in backticks in one column."""
    return [name for row in rows for name in ticked(row[column])]


def pairs(rows):
    """What is in backticks in the first column, with the second column as it stands."""
    return [(name, row[1].strip("`")) for row in rows for name in ticked(row[0])]


def seconds(path, constant):
    """A constant that is a duration."""
    product = re.search(rf"const {constant}: Duration = Duration::from_secs\(([\d* ]+)\)", read(path))
    if not product:
        sys.exit(f"error: {path} has no {constant} in seconds: correct .ci/names.py")
    return math.prod(int(factor) for factor in product.group(1).split("*"))


def errors():
    kinds = re.search(r"pub enum ErrorKind \{(.*?)\n\}", read("src/engine/error.rs"), re.S).group(1)
    arms = re.findall(r"(ErrorKind::[\w:| ]+) => \"(\w+)\"", read("src/lambda/diagnostic.rs"))
    name_of = {kind: name for arm, name in arms for kind in re.findall(r"ErrorKind::(\w+)", arm)}
    in_the_code = [(kind, name_of.get(kind)) for kind in re.findall(r"^    ([A-Z]\w+),$", kinds, re.M)]
    same("docs/errors.md", pairs(table("docs/errors.md", "## Errors", "| `ErrorKind` |")), in_the_code)
    readme = pairs(table("README.md", "## Errors", "| `error.kind()` |"))
    same("README.md, errors", set(readme) - set(in_the_code), ())
    levels = names(table("docs/operations.md", "## Logs", "| level |"), 1)
    same("docs/operations.md, levels", set(levels) - {"error_type"}, name_of.values())


def settings():
    page, method = "docs/settings.md", r"pub fn (\w+)\(mut self"
    client = pairs(table(page, "## Client", "| setting |"))
    budget = pairs(table(page, "## Budget", "| setting |"))
    same(f"{page}, client", dict(client), re.findall(method, read("src/client/builder.rs")))
    same(f"{page}, budget", dict(budget), re.findall(method, read("src/engine/budget.rs")))
    drift = int(re.search(r"drift_permille: (\d+),", read("protocol/src/clock_bounds.rs")).group(1))
    retention = seconds("protocol/src/schema.rs", "DEFAULT_TTL_RETENTION")
    defaults = [
        ("clock_drift", str(drift / 1000)),
        ("grace", f"{seconds('src/engine/budget.rs', 'DEFAULT_GRACE')} s"),
        ("max_clock_skew", f"{seconds('protocol/src/clock_bounds.rs', 'DEFAULT_SKEW')} s"),
        ("request_timeout", f"{seconds('src/client/builder.rs', 'DEFAULT_REQUEST_TIMEOUT')} s"),
        ("ttl_retention", f"{retention // 86400} days"),
    ]
    same(f"{page}, defaults", [pair for pair in client + budget if pair[0] in dict(defaults)], defaults)
    hours = seconds("src/once/request.rs", "DEFAULT_KEEP_FOR") // 3600
    same("docs/charge-once.md", re.findall(r"`keep_for` is (\d+) hours", read("docs/charge-once.md")), [str(hours)])
    features = re.search(r"\[features\]\n(.*?)\n\n", read("Cargo.toml"), re.S).group(1)
    in_the_code = set(re.findall(r"^(\w+) =", features, re.M)) - {"default"}
    same(f"{page}, features", names(table(page, "## Features", "| feature |")), in_the_code)


def functions():
    page = "docs/settings.md"
    sources = [read(path) for path in Path("functions").glob("**/src/*.rs") if path.name != "tests.rs"]
    sources = [source.partition("#[cfg(test)]")[0] for source in sources]
    in_the_code = {name for source in sources for name in re.findall(r'"([A-Z]+_[A-Z_]+)"', source)}
    in_the_code -= {"TIMED_OUT", "OUT_DIR"}
    # The SDK reads these itself, see functions/common/src/credentials.rs.
    in_the_code |= {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}
    rows = table(page, "## Functions", "| variable |")
    same(f"{page}, variables", names(rows), in_the_code)
    skew = seconds("protocol/src/clock_bounds.rs", "DEFAULT_SKEW") * 1000
    look = seconds("functions/lock-cleaner/src/handler.rs", "DEFAULT_SECOND_LOOK")
    defaults = {("LOCK_MAX_CLOCK_SKEW_MS", str(skew)), ("CLEANUP_SECOND_LOOK_SECONDS", str(look))}
    same(f"{page}, variables", defaults - {(row[0].strip("`"), row[2]) for row in rows}, ())

    fields = r'(?:fields|request)\.\w+\("(\w+)"'
    request = "".join(read(f"functions/lock-task/src/{file}.rs") for file in ("acquire", "lock", "observed", "refusal", "wanted"))
    of_a_lock = {"version", "fencingToken", "leaseEndsAt", "hmac", "lock", "locks"}
    same(
        "docs/lock-task.md, acquire",
        names(table("docs/lock-task.md", "## acquire", "| field |")),
        set(re.findall(fields, request)) - of_a_lock,
    )
    signature = re.search(r"def acquire\(self, (.*)\):", read("functions/lock-task/lock_task.py")).group(1)
    if f"`locks.acquire({signature})`" not in read("docs/lock-task.md"):
        found.append(f"docs/lock-task.md does not show locks.acquire({signature})")


def template():
    text = read("template.yaml")
    parts = dict(re.findall(r"^(Parameters|Resources|Outputs):\n(.*?)(?=^\S|\Z)", text, re.M | re.S))
    entries = {part: re.findall(r"^  (\w+):\n(.*?)(?=^  \w|\Z)", body, re.M | re.S) for part, body in parts.items()}
    parameters = []
    for name, body in entries["Parameters"]:
        default = re.search(r'^    Default: "?(.*?)"?$', body, re.M).group(1)
        parameters.append((name, default or "none"))
    same("docs/deploy.md, parameters", pairs(table("docs/deploy.md", "## Parameters", "| parameter |")), parameters)
    resources = names(table("docs/deploy.md", "## What the stack contains", "| part |"), 1)
    same("docs/deploy.md, resources", resources, dict(entries["Resources"]))
    # A name with such an end is an output or a parameter, or a definition of a state machine has a place for it.
    definitions = "".join(path.read_text() for path in Path("deploy/statemachines").glob("*.json"))
    known = {*dict(entries["Outputs"]), *dict(parameters), *re.findall(r"\$\{(\w+)\}", definitions), *NOT_OURS}
    for page in pages():
        named = ticked(prose_and_blocks(page)[0])
        named = {name for name in named if re.fullmatch(r"[A-Z][a-z]\w+(Name|Arn|Url|LogGroup)", name)}
        named.update(re.findall(r"OutputKey=='(\w+)'", read(page)))
        found.extend(f"{page}: the stack has no output {name}" for name in named - known)
    timeouts = {kebab(name): re.search(r"^      Timeout: (\d+)$", body, re.M) for name, body in entries["Resources"]}
    holders = table("docs/operations.md", "### 4. Wait, or free the lock", "| the holder |")
    said = {(name, of) for row in holders for name, of in re.findall(r"`([\w-]+)`[^`]*\((\d+) s\)", row[0])}
    same("docs/operations.md, timeouts", said, {(name, timeouts[name] and timeouts[name].group(1)) for name, _ in said})


def kebab(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def costs():
    """Requests as a test has counted them: writes and reads."""
    counted = dict(re.findall(r'\("([^"]+)", (\(\d+, \d+\))\)', read("tests/documentation/requests.rs")))
    places = {
        "a refused try": "try that is refused",
        "acquire a missing row": "acquire a free lock",
        "acquire a peer's released row": "acquire a free row of a Java or Go client",
        "checkpoint": "checkpoint, renew, resume",
        "peek": "peek",
        "reclaim": "reclaim",
        "release": "release",
    }
    rows = {row[0]: row for row in table("docs/cost.md", "## Operations", "| operation |")}
    for case, place in places.items():
        requests, writes, reads = next(row[1:4] for name, row in rows.items() if name.startswith(place))
        writes, reads = (int(re.match(r"\d+", number).group()) for number in (writes, reads))
        if f"({writes}, {reads})" != counted.get(case) or int(re.match(r"\d+", requests).group()) != writes + reads:
            found.append(f"docs/cost.md, {place}: the test has counted other requests for {case}")


def paths():
    """A path in backticks whose first folder is ours names a file or a folder."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    top = {path.partition("/")[0] for path in listed if "/" in path} | {".."}
    for page in Path(".").glob("**/*.md"):
        if str(page) not in listed:
            continue
        for name in ticked(prose_and_blocks(page)[0]):
            if not re.fullmatch(r"[\w.*-]+(/[\w.*-]+)+/?", name) or name.partition("/")[0] not in top:
                continue
            places = (os.path.normpath(page.parent / name), f"*{name.rstrip('/')}")
            if not any(fnmatch.fnmatch(path, place + end) for path in listed for place in places for end in ("", "/*")):
                found.append(f"{page}: there is no {name}")


def methods():
    """A method in the prose is one that users can call: the doc tests see only the blocks."""
    source = "".join(path.read_text() for crate in ("src", "protocol/src") for path in Path(crate).rglob("*.rs"))
    known = set(re.findall(r"pub (?:async )?fn (\w+)", source)) | set(METHODS_NOT_OURS)
    for page in pages():
        for name in ticked(prose_and_blocks(page)[0]):
            unknown = set(re.findall(r"\.(\w+)\(", name)) - known
            found.extend(f"{page}: `{name}`: the crate has no method {method}" for method in sorted(unknown))


def logs():
    page = "docs/operations.md"
    source = "".join(path.read_text() for path in Path("src").rglob("*.rs"))
    spans = re.findall(r'operation_span!\(\s*"(\w+)"', source)
    same(f"{page}, spans", names(table(page, "### Functions of your own", "| span |")), spans)
    warnings = re.findall(r'tracing::warn!\([^;]*?"((?:[^"\\]|\\.)*)"', source, re.S)
    # The longest one is cut on the page.
    warnings = {re.sub(r"(max_clock_skew: ).*", r"\1…", warning, flags=re.S) for warning in warnings}
    same(f"{page}, warnings", names(table(page, "### Functions of your own", "| message |")), warnings)


def pages():
    listed = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True).stdout.split()
    return [page for page in listed if page in ("README.md", "SECURITY.md") or page.startswith("docs/")]


def everything_else():
    """A name in backticks that is neither in the code nor in a block of its page is misspelt, or was renamed."""
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split()
    code = [path for path in listed if not path.endswith((".md", ".lock", ".svg")) and path != ".ci/names.py"]
    known = set(NOT_OURS)
    for path in code:
        known.update(re.findall(r"\w+", path))
        known.update(re.findall(r"\w+", Path(path).read_text(errors="ignore")))
    for page in pages():
        prose, blocks = prose_and_blocks(page)
        words = {word for name in ticked(prose) for word in re.findall(r"\b[A-Za-z_]\w{3,}", name)}
        unknown = words - known - set(re.findall(r"\w+", blocks))
        found.extend(f"{page}: `{word}` occurs nowhere in the code" for word in sorted(unknown))


def main():
    for check in (errors, settings, functions, template, costs, methods, logs, paths, everything_else):
        check()
    for finding in found:
        print(f"error: {finding}", file=sys.stderr)
    if not found:
        print(f"names and defaults of {len(pages())} pages are those of the code")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
