#!/usr/bin/env python3
"""Makes the wheel cgtree-check of the library and of the package beside this file.

    bazel build -c opt //check:library
    check/pack.py --out=dist bazel-bin/check/libcgtree_check.so
"""

import argparse
import base64
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "check/cgtree_check"
METADATA = """\
Metadata-Version: 2.1
Name: cgtree-check
Version: {version}
Summary: Finds stale pointers and lost calls in the CUDA graphs of a program
License: Apache-2.0
Requires-Python: >=3.9
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: cgtree
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[console_scripts]
cgtree-check = cgtree_check:main
"""


def stripped(path):
    """The bytes of a library without the symbols that loading it does not need."""
    if shutil.which("strip") is None:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "stripped")
        subprocess.run(["strip", "--strip-unneeded", "-o", out, path], check=True)
        return out.read_bytes()


def contents(library, version, tag):
    """{its place in the wheel: bytes}."""
    info = f"cgtree_check-{version}.dist-info"
    files = {f"cgtree_check/{path.relative_to(PACKAGE)}": path.read_bytes() for path in PACKAGE.rglob("*.py")}
    files["cgtree_check/libcgtree_check.so"] = stripped(library)
    for licence in ("LICENSE", "THIRD_PARTY_LICENSES.md"):
        files[f"{info}/{licence}"] = (ROOT / licence).read_bytes()
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    record = ""
    for place, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{place},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return files


def main():
    parser = argparse.ArgumentParser(prog="pack.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("dist"), help="a folder for the wheel")
    parser.add_argument("library", type=pathlib.Path, help="libcgtree_check.so")
    options = parser.parse_args()
    if not options.library.is_file():
        parser.error(f"{options.library} is no file")
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"^project\(cgtree VERSION (\S+)", text, re.MULTILINE).group(1)
    tag = f"py3-none-linux_{platform.machine()}"
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"cgtree_check-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, data in contents(options.library, version, tag).items():
            entry = zipfile.ZipInfo(place, date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if place.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(path)


if __name__ == "__main__":
    main()
