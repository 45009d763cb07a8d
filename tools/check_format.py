#!/usr/bin/env python3
"""Checks that clang-format-14 would change no C++ or CUDA file of the tree.

usage: tools/check_format.py [--fix] [ROOT]

Exits with 1 if a file is not formatted.
"""

import pathlib
import shutil
import subprocess
import sys

import source_tree

CLANG_FORMAT = "clang-format-14"


def run(root, options):
    """Returns the output of clang-format for the tree, which is empty if all is formatted."""
    if shutil.which(CLANG_FORMAT) is None:
        return f"{CLANG_FORMAT} is not installed: run tools/setup\n"
    names = [str(path) for path in source_tree.files(root) if path.suffix in source_tree.CXX]
    if not names:
        return f"no C++ file found under {root}\n"
    result = subprocess.run([CLANG_FORMAT, *options, *names], cwd=root, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0 and not result.stdout:
        return f"{CLANG_FORMAT} ended with status {result.returncode}\n"
    return result.stdout


def check(root):
    return run(root, ["--style=file", "--dry-run", "-Werror"])


def main():
    arguments = sys.argv[1:]
    fix = "--fix" in arguments
    roots = [a for a in arguments if a != "--fix"] or [pathlib.Path(__file__).resolve().parents[1]]
    said = run(roots[0], ["--style=file", "-i"]) if fix else check(roots[0])
    print(said, end="")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
