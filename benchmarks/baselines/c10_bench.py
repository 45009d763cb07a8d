#!/usr/bin/env python3
"""Builds c10_cuda_bench.cc against the installed PyTorch, runs it and writes its rows as JSON.

  python3 benchmarks/baselines/c10_bench.py --json=c10.json [--samples=N] [--merge=FILE] [--build=DIR]
      [TRACE ...]

Needs PyTorch with CUDA, its headers, the CUDA toolkit and a C++20 compiler. With --merge, the rows
are added to those of a result file of allocator_bench, made just before on the same machine. With
--build, the program is kept in a folder, and reused the next time.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(folder):
    import torch
    from torch.utils import cpp_extension
    library = pathlib.Path(torch.__file__).parent / "lib"
    program = pathlib.Path(folder, "c10_bench")
    if program.exists():
        return program, torch.__version__
    includes = cpp_extension.include_paths("cuda")
    command = ["c++", "-O3", "-DNDEBUG", "-std=c++20",
               f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{ROOT}",
               *(f"-isystem{path}" for path in includes),
               str(ROOT / "benchmarks/baselines/c10_cuda_bench.cc"), "-o", str(program),
               f"-L{library}", f"-Wl,-rpath,{library}", "-lc10", "-lc10_cuda",
               *(f"-L{path}" for path in cpp_extension.library_paths("cuda")), "-lcudart",
               "-lpthread"]
    subprocess.run(command, check=True)
    return program, torch.__version__


def uncompressed(path, folder):
    if not path.endswith(".gz"):
        return path
    target = pathlib.Path(folder, pathlib.Path(path).name.removesuffix(".gz"))
    with gzip.open(path, "rb") as packed:
        target.write_bytes(packed.read())
    return str(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--merge", help="result file of allocator_bench")
    parser.add_argument("--build", help="a folder for the program, which exists")
    parser.add_argument("trace", nargs="*")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, version = build(arguments.build or folder)
        traces = [uncompressed(path, folder) for path in arguments.trace]
        run = subprocess.run([str(program), str(arguments.samples), *traces], text=True,
                             stdout=subprocess.PIPE, check=False)
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    results = {"context": {}, "benchmarks": []}
    if arguments.merge:
        results = json.loads(pathlib.Path(arguments.merge).read_text(encoding="utf-8"))
    results["context"]["torch"] = version
    results["context"]["command_c10"] = " ".join(sys.argv)
    results["benchmarks"] += rows
    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if run.returncode != 0:
        sys.exit(f"c10_bench ended with status {run.returncode} after {len(rows)} rows")


if __name__ == "__main__":
    main()
