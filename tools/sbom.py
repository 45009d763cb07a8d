#!/usr/bin/env python3
"""Writes the contents of a release's packages, as a CycloneDX 1.6 bill of materials.

FOLDER has archives of sources, wheels and Debian packages; FOLDER/cgtree-VERSION.cdx.json lists them with their hashes,
and the code that each contains of headers, of CUDA's runtime and of LLVM's C++ library. Versions are those of the
headers that this machine's compiler finds, so it must run where the packages were built. The same packages give the
same file.
"""

import argparse
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import uuid
import zipfile

ROOT = pathlib.Path(__file__).absolute().parents[1]
HEADERS = ("fmt/format.h", "spdlog/version.h", "nlohmann/json.hpp")
# In the static library of CUDA's runtime alone, and in that of LLVM's C++ library.
CUDART = b"/cudart.shm."
LIBCXX = b"libc++abi: "
APACHE_LLVM = {"expression": "Apache-2.0 WITH LLVM-exception"}
ELF = b"\x7fELF"


def macros(*headers):
    """Returns the macros of C++ programs that include the headers."""
    cuda = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    command = ["c++", "-std=c++20", "-E", "-dM", "-x", "c++", "-isystem", cuda, "-isystem", cuda / "cccl", "-"]
    text = subprocess.run(command, input="".join(f"#include <{header}>\n" for header in headers), text=True,
                          check=True, stdout=subprocess.PIPE).stdout
    return dict(re.findall(r"^#define (\w+) (.+)$", text, re.MULTILINE))


def number(value, *digits):
    """Returns 9.1.0 of 90100 with digits (10000, 100, 1)."""
    value = int(value.rstrip("ULul"))
    return ".".join(str(value // digit % (before // digit if before else value + 1))
                    for before, digit in zip((0, *digits), digits))


def component(name, version, licence, **more):
    return {"type": "library", "bom-ref": name, "name": name, "version": version, "licenses": [licence],
            "purl": f"pkg:generic/{name}@{version}"} | more


def of_headers():
    """Returns the components of all binaries."""
    found = macros(*HEADERS)
    mit = {"license": {"id": "MIT"}}
    return [component("fmt", number(found["FMT_VERSION"], 10000, 100, 1), mit),
            component("spdlog", ".".join(found[f"SPDLOG_VER_{part}"] for part in ("MAJOR", "MINOR", "PATCH")), mit),
            component("nlohmann-json", ".".join(found[f"NLOHMANN_JSON_VERSION_{part}"]
                                                for part in ("MAJOR", "MINOR", "PATCH")), mit)]


def of_cuda():
    """Returns the further components of binaries for GPUs."""
    found = macros("cuda_runtime_api.h", "cuda/std/version", "nvtx3/nvToolsExt.h")
    return [component("cuda-cudart", number(found["CUDART_VERSION"], 1000, 10),
                      {"license": {"name": "NVIDIA Software License Agreement, CUDA Supplement"}}),
            component("cccl", number(found["_CCCL_VERSION" if "_CCCL_VERSION" in found else "CCCL_VERSION"], 1000000, 1000, 1),
                      APACHE_LLVM),
            component("nvtx", f"{found['NVTX_VERSION']}", APACHE_LLVM)]


def of_llvm():
    """Returns the further components of binaries of tools/wheels, without a version, because their compiler is not
    asked."""
    return [{"type": "library", "bom-ref": "libc++", "name": "libc++", "licenses": [APACHE_LLVM]}]


def members(path):
    """Yields the contents of the files in a package."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            yield from map(wheel.read, wheel.namelist())
        return
    text = path.read_bytes()
    if path.suffix == ".deb":
        text = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(text)) as archive:
        yield from (archive.extractfile(member).read() for member in archive if member.isfile())


def contents(path):
    """Returns those of the functions above that describe a package's binaries."""
    binaries = [text for text in members(path) if text.startswith((ELF, b"!<arch>\n"))]
    marks = (of_headers, b""), (of_cuda, CUDART), (of_llvm, LIBCXX)
    return [tells for tells, mark in marks if any(mark in text for text in binaries)]


def bill(folder):
    """Returns the bill of materials of a folder's packages."""
    lists = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"project\(cgtree VERSION (\S+) ", lists).group(1)
    packages = sorted(path for path in folder.iterdir() if path.name.endswith((".tar.gz", ".whl", ".deb")))
    if not packages:
        raise FileNotFoundError(f"{folder} has no .tar.gz, .whl or .deb")
    found = {path: contents(path) for path in packages}
    parts = {tells: tells() for tells in (of_headers, of_cuda, of_llvm) if any(tells in each for each in found.values())}
    files = [{"type": "file", "bom-ref": path.name, "name": path.name, "version": version,
              "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]}
             for path in found]
    depends = [{"ref": path.name, "dependsOn": [part["bom-ref"] for tells in inside for part in parts[tells]]}
               for path, inside in found.items()]
    depends.append({"ref": "cgtree", "dependsOn": [file["bom-ref"] for file in files]})
    made = {"components": files + [part for each in parts.values() for part in each], "dependencies": depends}
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(made))}", "version": 1,
            "metadata": {"component": component("cgtree", version, {"license": {"id": "Apache-2.0"}})}} | made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path)
    folder = parser.parse_args().folder
    try:
        made = bill(folder)
    except OSError as error:
        print(f"sbom.py: {error}", file=sys.stderr)
        return 1
    path = folder / f"cgtree-{made['metadata']['component']['version']}.cdx.json"
    path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
