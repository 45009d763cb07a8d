"""Packs the package: as a wheel, or with programs beside it for a GPU host.

usage: pack.py wheel --out=DIRECTORY FILE...      writes DIRECTORY/cgtree-VERSION-cp311-abi3-....whl
       pack.py bundle --out=FILE.tar.gz FILE...   a folder to unpack anywhere; see run.sh in it

FILEs are named by where they lie below the workspace's root; python/cgtree/ is the package.
"""

import argparse
import base64
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

NAME = "cgtree"
TAG = "cp311-abi3-linux_x86_64"
PACKAGE = "python/cgtree/"
EPOCH = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: CUDA graphs for step functions that launch CuPy, Numba, Triton or PyTorch work
License: Apache-2.0
Requires-Python: >=3.11
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: {name} pack.py
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[torch_dynamo_backends]
{name} = {name}.torch:backend
"""
RUN = """\
#!/usr/bin/env bash
# Runs all programs of this folder with python3; JSON files go to results/.
cd "$(dirname "$0")" || exit 1
mkdir -p results
status=0
for program in "tests/python/interop_matrix.py --quiet" tests/python/framework_steps.py \\
    tests/python/framework_suites_test.py tests/python/races.py tests/python/torch_newcomer.py \\
    "tests/python/torch_newcomer.py --suite=torch_modules" "benchmarks/python_bench.py --torch" \\
    benchmarks/python_bench.py benchmarks/audit_libraries.py; do
  name=${program##*/}
  name=${name/.py/}
  echo "== $program"
  # shellcheck disable=SC2086
  ${PYTHON:-python3} $program --json="results/${name// /}.json" || status=1
done
exit $status
"""


def stripped(path):
    """Returns the bytes of a shared library without the symbols that loading it does not need."""
    tool = shutil.which("strip")
    if tool is None:
        with open(path, "rb") as file:
            return file.read()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "stripped")
        subprocess.run([tool, "--strip-unneeded", "-o", out, path], check=True)
        with open(out, "rb") as file:
            return file.read()


def contents(paths):
    """{where it goes below the workspace's root: bytes}."""
    files = {}
    for path in paths:
        place = re.sub(r"^bazel-out/[^/]+/bin/", "", path)
        if path.endswith(".so"):
            files[place] = stripped(path)
        else:
            with open(path, "rb") as file:
                files[place] = file.read()
    return files


def version_of(files):
    text = files[PACKAGE + "__init__.py"].decode()
    return re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE).group(1)


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def write_wheel(files, folder):
    version = version_of(files)
    info = f"{NAME}-{version}.dist-info"
    entries = {NAME + "/" + place[len(PACKAGE):]: data for place, data in sorted(files.items())
               if place.startswith(PACKAGE)}
    entries[f"{info}/METADATA"] = METADATA.format(name=NAME, version=version).encode()
    entries[f"{info}/WHEEL"] = WHEEL.format(name=NAME, tag=TAG).encode()
    entries[f"{info}/entry_points.txt"] = ENTRY_POINTS.format(name=NAME).encode()
    if "LICENSE" in files:
        entries[f"{info}/LICENSE"] = files["LICENSE"]
    record = "".join(f"{place},{digest(data)},{len(data)}\n" for place, data in entries.items())
    entries[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{NAME}-{version}-{TAG}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, data in entries.items():
            entry = zipfile.ZipInfo(place, EPOCH)
            entry.external_attr = (0o755 if place.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return path


def write_bundle(files, path):
    name = os.path.basename(path).partition(".")[0]
    files = {**files, "run.sh": RUN.encode()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for place, data in sorted(files.items()):
            place = place[len("python/"):] if place.startswith(PACKAGE) else place
            entry = tarfile.TarInfo(f"{name}/{place}")
            entry.size, entry.mode = len(data), 0o755 if place.endswith((".so", ".sh")) else 0o644
            tar.addfile(entry, io.BytesIO(data))
    with open(path, "wb") as file:
        file.write(gzip.compress(buffer.getvalue(), mtime=0))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["wheel", "bundle"])
    parser.add_argument("--out", default="dist")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    # `bazel run` starts programs elsewhere: relative folders are the caller's.
    out = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), options.out)
    write = write_wheel if options.kind == "wheel" else write_bundle
    print(write(contents(options.files), out))


if __name__ == "__main__":
    sys.exit(main())
