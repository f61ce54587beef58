"""Looks at what `sam build` built: python deploy/template/archives.py TEMPLATE ARCHITECTURE

Every function of the template must be there, as one file: the program that the template names, for that
architecture, and linked statically. Prints what each weighs, as it is and zipped as `sam package` zips it,
and fails when one is too heavy.
"""

import io
import pathlib
import struct
import subprocess
import sys
import zipfile

from expansion import Expansion

BUILT = pathlib.Path(".aws-sam/build")
# What stands in the head of a program that is for this architecture.
MACHINES = {"arm64": 183, "x86_64": 62}
# What only a program has that another one has to load, together with its libraries.
PT_INTERP = 3
# Bytes, zipped. The client of Step Functions, which ends the waits of executions, takes 0.1 MB of them, and that the code is
# optimised with `s` instead of `z` another 0.1 MB.
LIMITS = {"lock-task": 2_500_000}


def machine(program):
    """What a program is for, as the head of an ELF file with 64 bits says."""
    if program[:6] != b"\x7fELF\x02\x01":
        return None
    return struct.unpack_from("<H", program, 18)[0]


def is_static(program):
    """Whether nothing else is loaded with a program."""
    (headers,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = (struct.unpack_from("<I", program, headers + place * size)[0] for place in range(count))
    return PT_INTERP not in kinds


def zipped(program):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bootstrap", program)
    return len(archive.getvalue())


def rule(function):
    """The command that builds a function for arm64: for x86_64 `sam build` itself knows the binary."""
    make = ["make", "--dry-run", "--file", "deploy/template/Makefile", f"build-{function}"]
    return subprocess.run(make, check=True, capture_output=True, text=True).stdout


def findings(function, binary, architecture):
    folder = BUILT / function
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    if files != ["bootstrap"]:
        yield f"{function} should be one file, bootstrap, and is {files or 'missing'}"
        return
    program = (folder / "bootstrap").read_bytes()
    if f" --bin {binary} " not in rule(function):
        yield f"{function} is not built from {binary} for arm64: deploy/template/Makefile has another one"
    if machine(program) != MACHINES[architecture]:
        yield f"{function} is not for {architecture}"
    elif not is_static(program):
        yield f"{function} is not linked statically"
    weight = zipped(program)
    if weight >= LIMITS.get(binary, sys.maxsize):
        yield f"{function} has {weight:,} bytes zipped: less than {LIMITS[binary]:,} are promised"
    print(f"{function}: {len(program):,} bytes, {weight:,} zipped")


def main(template, architecture):
    binaries = Expansion(template).binaries.items()
    found = [finding for name, binary in binaries for finding in findings(name, binary, architecture)]
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{len(binaries)} functions, each linked statically for {architecture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
