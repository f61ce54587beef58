"""Weighs what `sam build` built: python3 template/sizes.py BUILD-DIRECTORY FUNCTION LIMIT

Prints every function's bootstrap, as it is and zipped as `sam package` zips it, and fails when the
function is not there or is LIMIT bytes or more zipped.
"""

import io
import pathlib
import sys
import zipfile


def zipped(path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(path, "bootstrap")
    return len(archive.getvalue())


def main(directory, function, limit):
    sizes = {}
    for path in sorted(pathlib.Path(directory).glob("*/bootstrap")):
        sizes[path.parent.name] = zipped(path)
        print(f"{path.parent.name}: {path.stat().st_size:,} bytes, {sizes[path.parent.name]:,} zipped")
    if function not in sizes:
        sys.exit(f"{function} was not built")
    if sizes[function] >= limit:
        sys.exit(f"{function} has {sizes[function]:,} bytes zipped: {limit:,} are too many")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
