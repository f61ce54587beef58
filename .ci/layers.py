#!/usr/bin/env python3
"""Fails when the files or the modules of a crate import each other in a circle, or those of the lock a storey above their own.

A module is a file or a folder beside lib.rs, with all that is in it.

Run it from the repository's root. It reads `use` declarations and paths such as `crate::a::b`; a name that a module
re-exports counts as the file that defines it. It does not see methods, which need no import. Not read: comments,
strings, tests, and `pub use` of a module's own children.
"""

import re
import sys
from pathlib import Path

# The storeys of the lock's crates, from top to bottom. An import may go down, or stay within a storey.
STOREYS = {
    "src": [
        ["lib"],
        ["lambda", "once"],
        ["client"],
        ["lock"],
        ["engine"],
    ],
    "protocol/src": [
        ["lib"],
        # Operations.
        ["acquire", "commit", "once", "operator", "peek", "release", "renew"],
        # What they share.
        ["backoff", "call", "contention", "failure", "observation", "read", "saved", "steps", "work"],
        # Requests, and rows.
        ["expression", "holding", "port", "record", "reply", "request", "settings"],
        # What these are made of.
        ["attributes", "clock_bounds", "instants", "invalid", "key", "lease", "line", "schema", "value", "version"],
    ],
}

SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(\#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\\n])'""", re.DOTALL
)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))? )?mod (\w+)\s*([;{])")
ELSEWHERE = re.compile(r'#\[path = "\.\./[^"]*"\]\s*mod (\w+);')
USE = re.compile(r"(?m)^\s*(pub(?:\([^)]*\))? )?use ([^;]+);")


class Crate:
    """The files of one crate: what each is called as a module, and which names it imports."""

    def __init__(self, src):
        # Modules as tuples of names: src/lib.rs is (), src/a/mod.rs is ("a",), src/a/b.rs is ("a", "b").
        self.files, self.texts, self.uses = {}, {}, {}
        root = src / "lib.rs" if (src / "lib.rs").exists() else src / "main.rs"
        for path in sorted(src.rglob("*.rs")):
            name = path.relative_to(src).with_suffix("").parts
            if path == root:
                name = ()
            elif name[-1] == "mod":
                name = name[:-1]
            elif path.name == "main.rs" or name[0] == "bin":
                continue
            self.files[name] = path.as_posix()
            self.texts[name] = SKIPPED.sub('""', path.read_text())
        # Modules whose file lies outside of the crate, by `#[path]`.
        self.elsewhere = set(ELSEWHERE.findall(root.read_text()))
        self.leave_tests_out()
        for module, text in self.texts.items():
            self.uses[module] = [
                (bool(public), path, bound)
                for public, tree in USE.findall(text)
                for path, bound in expanded("".join(tree.replace(" as ", "@").split()))
            ]

    def leave_tests_out(self):
        for module, text in list(self.texts.items()):
            for test in TESTS.finditer(text):
                if test[2] == "{":  # a module of tests is the last thing in its file
                    self.texts[module] = text[: test.start()]
                    break
                tests = module + (test[1],)
                for name in [name for name in self.files if name[: len(tests)] == tests]:
                    del self.files[name], self.texts[name]

    def file_of(self, module, path, depth=0):
        """The module whose file defines what `path` names in `module`; None outside of the crate."""
        first, *rest = path
        if first == "crate" and rest and rest[0] in self.elsewhere:
            return None
        if first == "crate":
            here = ()
        elif first == "self":
            here = module
        elif first == "super":
            here = module[:-1]
        elif module + (first,) in self.files:
            here, rest = module, path
        else:
            return None
        while rest and (rest[0] == "super" or here + (rest[0],) in self.files):
            here = here[:-1] if rest[0] == "super" else here + (rest[0],)
            rest = rest[1:]
        # A name that a module has from elsewhere.
        for _, origin, bound in self.uses.get(here, []) if rest and depth < 8 else []:
            if bound == rest[0]:
                return self.file_of(here, origin + rest[1:], depth + 1) or here
        return here

    def imports(self):
        """Pairs of files: the importing one and the imported one."""
        found = set()
        for module, text in self.texts.items():
            children = [name[-1] for name in self.files if name and name[:-1] == module]
            starts = "|".join(["crate", "super", "self", *children])
            inline = re.findall(rf"(?<![\w:$])(?:{starts})(?:::\w+)+", USE.sub("", text))
            paths = [(False, path.split("::")) for path in inline]
            for public, path in paths + [(public, path) for public, path, _ in self.uses[module]]:
                target = self.file_of(module, path)
                re_exported = public and target is not None and target[: len(module)] == module
                if target in self.files and target != module and not re_exported:
                    found.add((self.files[module], self.files[target]))
        return found


def expanded(tree):
    """The paths of a `use` tree, each as a list of names, with the name that it binds."""
    head, brace, inner = tree.partition("{")
    if not brace:
        path, _, alias = tree.partition("@")
        path = path.split("::")
        if path[-1] == "self" and len(path) > 1:
            path.pop()
        return [(path, alias or path[-1])]
    parts, depth, start = [], 0, 0
    inner = inner[:-1]
    for at, letter in enumerate(inner + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    return [one for part in parts if part for one in expanded(head + part)]


def cycle(imports):
    """One cycle, as short as there is one through its first file; None where there is none."""
    below = {}
    for a, b in sorted(imports):
        below.setdefault(a, []).append(b)
    shortest = None
    for start in below:
        ways, seen = [[start]], set()
        for way in ways:
            for b in below.get(way[-1], []):
                if b == start and (shortest is None or len(way) < len(shortest)):
                    shortest = way
                if b not in seen:
                    seen.add(b)
                    ways.append(way + [b])
    return shortest


def module(src, file):
    return Path(file).relative_to(src).parts[0].removesuffix(".rs")


def check(src):
    imports = Crate(src).imports()
    modules = {(module(src, a), module(src, b)) for a, b in imports}
    modules = {(a, b) for a, b in modules if a != b}
    errors, upward = [], []
    if storeys := STOREYS.get(str(src)):
        storey = {name: number for number, names in enumerate(storeys) for name in names}
        for name in sorted({name for pair in modules for name in pair} - set(storey)):
            errors.append(f"{src}/{name} belongs to no storey: name it in STOREYS of .ci/layers.py")
        for a, b in sorted(imports):
            above, below = storey.get(module(src, a)), storey.get(module(src, b))
            if None not in (above, below) and above > below:
                upward.append((a, b))
        errors += [f"{a} imports {b}, which is a storey above it" for a, b in upward]
    for what, rest in (("files", set(imports)), ("modules", set(modules))):
        while found := cycle(rest):
            errors.append(f"{src}: a circle of {what}: " + " -> ".join([*found, found[0]]))
            rest.discard((found[-1], found[0]))  # and then the next one
    print(f"{src}: {len(imports)} imports between files, {len(upward)} of them upward")
    return errors


def main():
    crates = [Path("src"), Path("protocol/src"), Path("component/protocol/src"), *sorted(Path("functions").glob("**/src"))]
    errors = [error for src in crates for error in check(src)]
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
