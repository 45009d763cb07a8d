"""Packs the package with programs beside it for a GPU host.

usage: pack.py OUT.tar.gz FILE...      a folder to unpack anywhere; see run.sh in it

FILEs are named by where they lie below the workspace's root; python/cgtree/ is the package, which moves to the folder's root.
"""

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "python/cgtree/"
RUN = """\
#!/usr/bin/env bash
# Runs all programs of this folder with python3; JSON files go to results/.
cd "$(dirname "$0")" || exit 1
mkdir -p results
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
status=0
for program in "tests/python/interop_matrix.py --quiet" tests/python/framework_steps.py \\
    tests/python/framework_captures_test.py tests/python/races.py tests/python/torch_cases.py \\
    tests/python/torch_programs_run.py tests/python/torch_memory_run.py \\
    benchmarks/torch_seam_bench.py benchmarks/python_bench.py benchmarks/audit_libraries.py; do
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


def main():
    out, *paths = sys.argv[1:]
    name = os.path.basename(out).partition(".")[0]
    files = {**contents(paths), "run.sh": RUN.encode()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for place, data in sorted(files.items()):
            place = place[len("python/"):] if place.startswith(PACKAGE) else place
            entry = tarfile.TarInfo(f"{name}/{place}")
            entry.size, entry.mode = len(data), 0o755 if place.endswith((".so", ".sh")) else 0o644
            tar.addfile(entry, io.BytesIO(data))
    with open(out, "wb") as file:
        file.write(gzip.compress(buffer.getvalue(), mtime=0))


if __name__ == "__main__":
    main()
