#!/usr/bin/env python3
"""Compiles the host code that uses CUDA against the headers of several toolkits.

usage: tools/check_cuda_versions.py [--versions=12.0.146,...] [--headers=FOLDER] [--compiler=g++]

compile_two_files() is for tests: it compiles the two files, kernels too, with Clang and the oldest toolkit of PyPI.

Headers come from PyPI's packages of the CUDA runtime, into FOLDER (by default a temporary one); existing ones are not
fetched again. fmt, spdlog and nlohmann-json must be installed. Nothing is linked or run. Prints a line for each
version, and the errors of those that fail. Exits with 1 if any fails.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import source_tree

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("interop/device/cuda", "targets/cuda")
VERSIONS = ("12.0.146", "12.1.105", "12.2.140", "12.3.101", "12.4.127", "12.5.82", "12.6.77", "12.8.90",
            "12.9.79", "13.0.96", "13.1.80", "13.5.37")
FLAGS = ("-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror",
         "-DCGTREE_CUDA_ROOT=\"\"", "-DCGTREE_CUDA_ARCHS=\"\"", "-iquote", ".")


def fetch(package, version, folder, place):
    """Unpacks a package of PyPI in `place`."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                    f"--dest={folder / 'packages'}", f"{package}=={version}"], check=True)
    name = f"{package.replace('-', '_')}-{version}-"
    [package] = [file for file in (folder / "packages").iterdir() if file.name.startswith(name)]
    with zipfile.ZipFile(package) as archive:
        archive.extractall(place)


def headers_of(version, folder):
    """Returns the folder with the headers of a version, which is fetched if it does not exist."""
    place = folder / version
    if not place.exists():
        fetch("nvidia-cuda-runtime" + ("-cu12" if version.startswith("12.") else ""), version, folder, place)
    [include] = [path.parent for path in place.rglob("cuda_runtime_api.h")]
    return include


def compile_two_files(source, folder):
    """Compiles cgtree_steps.cu in `folder` with Clang 16, GCC 11's C++ library, and headers, libdevice and ptxas of CUDA
    12.0: its kernels to machine code, and its host code. PyPI has no nvcc of that version."""
    toolkit = folder / "toolkit"
    if not toolkit.exists():
        for package, version in (("nvidia-cuda-runtime-cu12", "12.0.146"), ("nvidia-cuda-nvcc-cu12", "12.0.140")):
            fetch(package, version, folder, folder / "parts")
        for part in (folder / "parts/nvidia").iterdir():
            if part.is_dir():
                shutil.copytree(part, toolkit, dirs_exist_ok=True)
        (toolkit / "bin/ptxas").chmod(0o755)
        (toolkit / "include/curand_mtgp32_kernel.h").touch()  # Clang includes it in each file
        # A folder that Clang also searches by itself is searched last, after those of the system.
        shutil.copytree(toolkit / "include", folder / "headers")
    for part in (["--cuda-device-only", "-O1", "-c", "-o", folder / "kernels.o"], ["--cuda-host-only", "-fsyntax-only"]):
        subprocess.run(["clang++-16", "-x", "cuda", f"--cuda-path={toolkit}", "--cuda-gpu-arch=sm_75", "-std=c++20",
                        f"-I{folder / 'headers'}", "--gcc-install-dir=/usr/lib/gcc/x86_64-linux-gnu/11",
                        "-Wno-unknown-attributes", *part, source], check=True, cwd=source.parent)


def compile_file(compiler, include, path):
    """Returns the compiler's output."""
    done = subprocess.run([compiler, *FLAGS, "-isystem", include, path], cwd=ROOT, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--headers", type=pathlib.Path)
    parser.add_argument("--compiler", default="g++")
    options = parser.parse_args()
    files = [path for path in source_tree.files(ROOT)
             if path.suffix == ".cc" and str(path.parent) in FOLDERS]
    failed = False
    with tempfile.TemporaryDirectory() as own, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for version in options.versions.split(","):
            include = headers_of(version, options.headers or pathlib.Path(own))
            said = "".join(pool.map(lambda path: compile_file(options.compiler, include, path), files))
            print(f"{version}: {len(files)} files, {'failed' if said else 'passed'}", flush=True)
            print(said, end="")
            failed = failed or bool(said)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
