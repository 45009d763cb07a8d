#!/usr/bin/env python3
"""Checks that clang-format-14 would change no C++ or CUDA file of the tree.

Exits with 1 if a file is not formatted.
"""

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true", help="format the files")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parents[1])
    arguments = parser.parse_args()
    said = run(arguments.root, ["--style=file", "-i"]) if arguments.fix else check(arguments.root)
    print(said, end="")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
