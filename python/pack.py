"""Packs the package: as a wheel, or with programs beside it for a GPU host.

usage: pack.py wheel --out=DIRECTORY FILE...      writes DIRECTORY/cgtree-VERSION-cp311-abi3-....whl
       pack.py tag FILE                           prints the tag of a wheel with this extension
       pack.py bundle --out=FILE.tar.gz FILE...   a folder to unpack anywhere; see run.sh in it

The tag is manylinux_2_N where the extension needs nothing but what such a system has: glibc 2.N or
later, and the C++ library that comes with it. FILEs are named by where they lie below the workspace's root; python/cgtree/ is the package.
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
PYTHON_TAG = "cp311-abi3"
PACKAGE = "python/cgtree/"
MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF
# The libraries that every system of a manylinux tag has. Source: PEP 600, and auditwheel's policies.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libutil|libstdc\+\+|libgcc_s|libz|ld-linux-[\w-]+)\.so\.\d+")
# (version of libstdc++'s symbols, minor version of the oldest glibc that comes with it).
LIBSTDCXX = [((3, 4, 19), 17), ((3, 4, 22), 24), ((3, 4, 24), 28), ((3, 4, 28), 31),
             ((3, 4, 29), 34), ((3, 4, 30), 35), ((3, 4, 32), 38), ((3, 4, 33), 39)]
CXXABI = [((1, 3, 7), 17), ((1, 3, 10), 24), ((1, 3, 11), 28), ((1, 3, 12), 31), ((1, 3, 13), 34),
          ((1, 3, 14), 38), ((1, 3, 15), 39)]
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
    "tests/python/torch_newcomer.py --suite=torch_modules" tests/python/torch_programs_run.py \\
    tests/python/torch_memory_run.py \\
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


def oldest_glibc(needed):
    """Returns the minor version of the oldest glibc 2 on whose systems these symbol versions are,
    {"GLIBC": (2, 34), ...}; None if that is not known."""
    oldest = needed.get("GLIBC", (2, 0))
    if oldest[0] != 2:
        return None
    minor = max(oldest[1], 17)  # manylinux2014, the oldest that Python 3.11 has
    for name, table in (("GLIBCXX", LIBSTDCXX), ("CXXABI", CXXABI)):
        if name in needed:
            found = [glibc for version, glibc in table if needed[name] <= version]
            if not found:
                return None
            minor = max(minor, found[0])
    return minor


def platform_of(libraries, needed, machine):
    """Returns manylinux_2_N_MACHINE for a library that needs these others, and these versions of
    symbols; linux_MACHINE if not all such systems have them."""
    minor = oldest_glibc(needed)
    if minor is None or not all(map(SYSTEM_LIBRARIES.fullmatch, libraries)):
        return f"linux_{machine}"
    return f"manylinux_2_{minor}_{machine}"


def platform_tag(path):
    """Returns the platform that a shared library is for; linux_MACHINE if there is no readelf."""
    with open(path, "rb") as file:
        header = file.read(20)
    machine = MACHINES[int.from_bytes(header[18:20], "little")]
    tool = shutil.which("readelf")
    if tool is None:
        return f"linux_{machine}"
    text = subprocess.run([tool, "-W", "-d", "-V", path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    needed = {}
    for name, version in re.findall(r"Name: ([A-Z]+)_([\d.]+)", text):
        needed[name] = max(needed.get(name, (0,)), tuple(map(int, version.split("."))))
    return platform_of(re.findall(r"\(NEEDED\).*\[(.*)\]", text), needed, machine)


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


def write_wheel(files, folder, platform):
    version = version_of(files)
    tag = f"{PYTHON_TAG}-{platform}"
    info = f"{NAME}-{version}.dist-info"
    entries = {NAME + "/" + place[len(PACKAGE):]: data for place, data in sorted(files.items())
               if place.startswith(PACKAGE)}
    entries[f"{info}/METADATA"] = METADATA.format(name=NAME, version=version).encode()
    entries[f"{info}/WHEEL"] = WHEEL.format(name=NAME, tag=tag).encode()
    entries[f"{info}/entry_points.txt"] = ENTRY_POINTS.format(name=NAME).encode()
    if "LICENSE" in files:
        entries[f"{info}/LICENSE"] = files["LICENSE"]
    record = "".join(f"{place},{digest(data)},{len(data)}\n" for place, data in entries.items())
    entries[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{NAME}-{version}-{tag}.whl")
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
    parser.add_argument("kind", choices=["wheel", "bundle", "tag"])
    parser.add_argument("--out", default="dist")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    # `bazel run` starts programs elsewhere: relative folders are the caller's.
    out = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), options.out)
    if options.kind == "bundle":
        print(write_bundle(contents(options.files), out))
        return
    extension = next(path for path in options.files if path.endswith(".so"))
    platform = platform_tag(extension)
    if options.kind == "tag":
        print(f"{PYTHON_TAG}-{platform}")
    else:
        print(write_wheel(contents(options.files), out, platform))


if __name__ == "__main__":
    sys.exit(main())
